#!/usr/bin/env bash
# Unpack a MySQL server into a folder, where tests and benches find it; nothing is installed, and no
# right of root is needed. A server that is there is kept.
# Usage: scripts/mysql.sh [FOLDER [PACKAGE]]; FOLDER is var/mysql. For another one export MYSQL_ROOT.
# With mariadb-server-core behind FOLDER it is the MariaDB of Debian unstable: MARIADB_ROOT.
# Debian has MySQL in unstable only. Its mirror is that of this machine's own sources.
set -euo pipefail
folder=$(realpath -m "${1:-$(dirname "$0")/../var/mysql}") package=${2:-mysql-server-core}
case $package in mariadb*) variable=MARIADB_ROOT ;; *) variable=MYSQL_ROOT ;; esac
if [[ ! -d $folder/root ]]; then
  mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true; } |
    sed -rn 's/^(URIs:|deb) +(\[[^]]*\] +)?(https?:[^ ]*debian)\/?( .*)?$/\3/;T;p;q')
  if [[ -z $mirror ]]; then
    echo "No mirror of Debian is among the sources of apt: there is no $package." >&2
    exit 1
  fi
  rm -rf "$folder/new"
  mkdir -p "$folder"/{lists/partial,cache/archives/partial,new}
  touch "$folder/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$folder/sid.list"
  options=(-q -o "Dir::Etc::SourceList=$folder/sid.list" -o Dir::Etc::SourceParts=-
    -o "Dir::State::Lists=$folder/lists" -o "Dir::State::status=$folder/status"
    -o "Dir::Cache=$folder/cache" -o "APT::Sandbox::User=$(id -un)" -o Debug::NoLocking=1
    -o Acquire::http::Timeout=20 -o Acquire::Languages=none)
  apt-get "${options[@]}" update >&2
  apt-get "${options[@]}" -y --no-install-recommends --download-only install "$package" >&2
  for archive in "$folder"/cache/archives/*.deb; do
    case $(basename "$archive") in perl* | libperl*) ;; *) dpkg-deb -x "$archive" "$folder/new" ;; esac
  done
  rm -rf "$folder"/{lists,cache}
  mv "$folder/new" "$folder/root"
fi
[[ $# == 0 ]] || echo "export $variable=$folder/root"
