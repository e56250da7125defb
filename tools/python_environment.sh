#!/usr/bin/env bash
# Makes the virtual environment FOLDER with what building and testing the Python package needs: nanobind,
# NumPy, a type checker; what tests hold our readers and writers of files against, and what a document draws with.
# Where no index can be reached it leaves FOLDER/unavailable with the reason instead, and the Python package is skipped
# by name; the next call tries again. Quiet when nothing is to do.
#
#   tools/python_environment.sh build/python-env [PYTHON]
set -uo pipefail

folder=$1
python=${2:-${ATHANOR_PYTHON:-python3}}
packages=("nanobind>=2.4" "numpy" "mypy" "safetensors" "pillow" "matplotlib")

say() { printf 'python_environment: %s\n' "$*" >&2; }
unavailable() {
  mkdir -p "$folder"
  printf '%s\n' "$*" >"$folder/unavailable"
  say "the Python package will be skipped: $*"
  exit 0
}

[[ -x $folder/bin/python && $(cat "$folder/complete" 2>/dev/null) == "${packages[*]}" ]] && exit 0
mkdir -p "$folder"
log=$folder/log
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
  unavailable "$python is not Python 3.9 or newer"
fi
"$python" -m venv --clear "$folder" >"$log" 2>&1 || { tail -n 3 "$log" >&2; unavailable "$python -m venv failed (Debian: python3-venv)"; }
say "installing ${packages[*]} into $folder"
if ! timeout 300 "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 20 \
  "${packages[@]}" >"$folder/log" 2>&1; then
  tail -n 3 "$folder/log" >&2
  unavailable "pip could not install ${packages[*]} (no index within reach?)"
fi
echo "${packages[*]}" >"$folder/complete"
