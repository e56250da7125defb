#!/usr/bin/env bash
# Puts together the files of the container image: the programs mnist and athanor, the libraries they need, certificates,
# a user, and the folders that jobs write to. The Dockerfile and the tests run this same script; the result needs
# nothing else to run, not even a shell.
#
#   deploy/assemble.sh BUILD TREE [--no-download]
#
# BUILD is a build folder with the targets mnist and athanor_cli, TREE a folder that does not exist yet or is empty.
# --no-download leaves out libcurl, which fetches MNIST if no folder has it. The last line tells the size.
set -euo pipefail

say() { printf 'assemble: %s\n' "$*" >&2; }

build="${1:-}" tree="$(realpath --canonicalize-missing "${2:-}" 2>/dev/null || true)" download=1
case "${3:-}" in
  --no-download) download=0 ;;
  "") ;;
  *) say "unknown argument '$3'"; exit 2 ;;
esac
if [[ -z "$build" || -z "$tree" ]]; then
  say "usage: deploy/assemble.sh BUILD TREE [--no-download]"
  exit 2
fi
for program in mnist athanor; do
  [[ -x "$build/bin/$program" ]] || { say "$build/bin/$program is missing: ninja -C $build mnist athanor_cli"; exit 1; }
done
if [[ -e "$tree" && -n "$(ls -A "$tree")" ]]; then
  say "$tree is not empty"
  exit 1
fi
umask 022
unset LD_LIBRARY_PATH LD_PRELOAD

mkdir -p "$tree"/{etc/ssl/certs,usr/lib,usr/lib64,proc,sys,dev,data,opt/athanor,katib,results}
ln -s usr/lib "$tree/lib"
ln -s usr/lib64 "$tree/lib64"
cmake --install "$build" --component image --prefix "$tree/usr" --strip >/dev/null

# A library goes where the loader looks for it: to its folder on this system, behind /lib's link to usr/lib.
libraries=()
add_library() {
  local target="$tree/usr${1#/usr}"
  [[ ! -e "$target" ]] || return 0
  install -D -m 755 "$1" "$target"
  libraries+=("$(realpath "$1")")
}

# What the loader would load for a program or library, and the loader itself.
add_needed() {
  local line path
  while read -r line; do
    case "$line" in
      *"not found"*) say "$1 needs ${line%% *}, which is not here"; exit 1 ;;
      *" => $tree/"*) continue ;;  # libathanor itself
      *" => /"*) path="${line#* => }" ;;
      /*) path="$line" ;;
      *) continue ;;
    esac
    add_library "${path%% (*}"
  done < <(ldd "$1")
}
for program in "$tree"/usr/bin/*; do
  add_needed "$program"
done
if ((download)); then
  # Loaded by name when a data set has to be fetched.
  curl=$(ldconfig -p | awk '/libcurl\.so\.4 / && !found++ { print $NF }')
  [[ -n "$curl" ]] || { say "libcurl.so.4 is not here; --no-download leaves it out"; exit 1; }
  add_library "$curl"
  add_needed "$curl"
  install -m 644 /etc/ssl/certs/ca-certificates.crt "$tree/etc/ssl/certs/"
fi

# Each comes with its licence. Packages may know a file by its name from before /lib became a link.
{ dpkg-query --search "${libraries[@]}" "${libraries[@]#/usr}" 2>/dev/null || true; } | cut -d: -f1 | sort -u |
  while read -r package; do
    [[ ! -e "/usr/share/doc/$package/copyright" ]] ||
      install -D -m 644 "/usr/share/doc/$package/copyright" "$tree/usr/share/doc/$package/copyright"
  done

printf 'root:x:0:0:root:/:/sbin/nologin\nathanor:x:10001:0:athanor:/opt/athanor:/sbin/nologin\n' >"$tree/etc/passwd"
printf 'root:x:0:\n' >"$tree/etc/group"
printf 'passwd: files\ngroup: files\nhosts: files dns\n' >"$tree/etc/nsswitch.conf"
: >"$tree/etc/hosts"
: >"$tree/etc/resolv.conf"

# Any user of group 0 may write there: clusters give pods user numbers of their own.
install -d -m 1777 "$tree/tmp"
if ((EUID == 0)); then
  chown -R 0:0 "$tree"
fi
chmod g+rwX "$tree"/{opt/athanor,katib,results}

bytes=$(du --summarize --apparent-size --block-size=1 "$tree" | cut -f1)
awk -v bytes="$bytes" -v tree="$tree" 'BEGIN { printf "%s: %.1f MB\n", tree, bytes / 1e6 }'
