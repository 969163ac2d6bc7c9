#!/usr/bin/env bash
# Prints the licences of everything that is compiled into a Go package and is not of this module: Go's own, that of liburing with the tag liburing, and
# those of the modules, with the licence files of their folders that are used. The texts come from the module cache, so they are those of the versions that are built in.
#
#   licenses.sh TAGS PACKAGE     GOOS, GOARCH and CGO_ENABLED as for the build
set -euo pipefail
tags=$1 package=$2

show() { # NAME FOLDER...
  local name=$1 found=0 file
  shift
  for file in $(for dir in "$@"; do find "$dir" -maxdepth 1 -type f \
    \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' -o -iname 'patents*' \) ! -name '*.go'; done | sort -u); do
    printf '%s\n%s: %s\n%s\n\n' "$line" "$name" "${file##*/}" "$line"
    cat "$file"
    echo
    found=1
  done
  [ "$found" = 1 ] || { echo "licenses: $name has no licence file in $*" >&2; return 1; }
}
line=$(printf '=%.0s' {1..80})

echo "This library contains the following software. Each part is under its own licence."
echo
root=$(go env GOROOT)
# Some distributions package Go without its licence, which is that of golang.org/x/sys, too.
[ -e "$root/LICENSE" ] || root=$(go list -m -f '{{.Dir}}' golang.org/x/sys)
show "Go $(go env GOVERSION)" "$root"
if [[ ,$tags, == *,liburing,* ]]; then
  for file in /usr/share/doc/liburing-dev/copyright /usr/share/licenses/liburing*/* /usr/share/doc/liburing*/COPYING*; do
    [ -e "$file" ] && printf '%s\n%s: %s\n%s\n\n' "$line" liburing "${file##*/}" "$line" && cat "$file" && found_liburing=1
  done
  [ "${found_liburing:-}" = 1 ] || { echo "licenses: no licence of liburing in /usr/share" >&2; exit 1; }
fi
# A line for each module: name, version, and every folder from its packages up to its root.
go list -tags "$tags" -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}} {{.Dir}}' "$package" |
  awk 'NF == 4 {
    name = $1 " " $2
    for (dir = $4; length(dir) >= length($3); sub("/[^/]*$", "", dir))
      if (!seen[name, dir]++) dirs[name] = dirs[name] " " dir
  }
  END { for (name in dirs) print name dirs[name] }' | sort |
  while read -r path version dirs; do
    # shellcheck disable=SC2086
    show "$path $version" $dirs
  done
