#!/usr/bin/env bash
# Installs what building, testing and benchmarking Athanor needs on Debian 12 (and its relatives). Says nothing and
# touches nothing when all of it is there already. Needs root, or sudo, only when something is missing.
#
#   tools/install_dependencies.sh            install what is missing
#   tools/install_dependencies.sh --list     print the packages
#   tools/install_dependencies.sh --missing  print those that are missing
set -euo pipefail

packages=(
  # compiler and build
  g++ cmake ninja-build ccache make git pkg-config python3 python3-dev python3-venv ca-certificates
  # what the library is built on; libcurl, libpng and libjpeg are loaded when used
  libdnnl-dev libhwy-dev nlohmann-json3-dev libcli11-dev zlib1g-dev
  libcurl4-openssl-dev libpng-dev libjpeg62-turbo-dev
  # the plug-ins gloo and mpi
  libgloo-dev libopenmpi-dev openmpi-bin
  # tests, benchmarks, style
  libgtest-dev libgmock-dev libbenchmark-dev python3-yaml clang-format clang-tidy doxygen
)

say() { printf 'install_dependencies: %s\n' "$*" >&2; }

missing_packages() {
  # A package of several architectures answers once for each.
  dpkg-query --show --showformat='${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null |
    awk -v wanted="${packages[*]}" '$2 == "installed" { have[$1] }
      END { n = split(wanted, names, " "); for (i = 1; i <= n; i++) if (!(names[i] in have)) print names[i] }'
}

case "${1:-}" in
  --list) printf '%s\n' "${packages[@]}"; exit 0 ;;
  --missing | "") ;;
  *) say "unknown argument '$1'; expected --list, --missing or nothing"; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null 2>&1; then
  say "this is not a Debian system (no dpkg-query). Install the equivalents of these packages by hand, then set"
  say "ATHANOR_SKIP_DEPENDENCIES=1 for make: ${packages[*]}"
  exit 1
fi

mapfile -t missing < <(missing_packages)
if [[ "${1:-}" == --missing ]]; then
  ((${#missing[@]} == 0)) || printf '%s\n' "${missing[@]}"
  exit 0
fi
((${#missing[@]} == 0)) && exit 0

if ((EUID == 0)); then
  as_root=(env)
elif command -v sudo >/dev/null 2>&1; then
  as_root=(sudo)
  # Without a terminal nobody can type a password: fail at once rather than wait.
  [[ -t 0 ]] || as_root=(sudo --non-interactive)
  if ! "${as_root[@]}" true; then
    say "sudo was refused. Ask an administrator to install: ${missing[*]}"
    exit 1
  fi
else
  say "neither root nor sudo is available. Ask an administrator to install: ${missing[*]}"
  exit 1
fi

say "installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get --quiet --option DPkg::Lock::Timeout=300 "$@"; }
if ! { apt update && apt install --yes --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
  cat "$log" >&2
  say "installation failed (see above)"
  exit 1
fi
mapfile -t missing < <(missing_packages)
if ((${#missing[@]} != 0)); then
  cat "$log" >&2
  say "still missing after installation: ${missing[*]}"
  exit 1
fi
say "done"
