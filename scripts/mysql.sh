#!/usr/bin/env bash
# Unpack a MySQL server into a folder, for `make test-mysql`; nothing is installed, and no right of
# root is needed. Usage: scripts/mysql.sh FOLDER, then export MYSQL_ROOT=FOLDER/root
# With mariadb-server-core behind FOLDER it is the MariaDB of Debian unstable: MARIADB_ROOT.
# Debian has MySQL in unstable only. Its mirror is that of this machine's own sources.
set -euo pipefail
folder=$(realpath -m "$1") package=${2:-mysql-server-core}
mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true; } |
  sed -rn 's/^(URIs:|deb) +(\[[^]]*\] +)?(https?:[^ ]*debian)\/?( .*)?$/\3/;T;p;q')
mkdir -p "$folder"/{lists/partial,cache/archives/partial,root}
touch "$folder/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$folder/sid.list"
options=(-o "Dir::Etc::SourceList=$folder/sid.list" -o Dir::Etc::SourceParts=-
  -o "Dir::State::Lists=$folder/lists" -o "Dir::State::status=$folder/status"
  -o "Dir::Cache=$folder/cache" -o "APT::Sandbox::User=$(id -un)" -o Debug::NoLocking=1)
apt-get "${options[@]}" update
apt-get "${options[@]}" -y --no-install-recommends --download-only install "$package"
for package in "$folder"/cache/archives/*.deb; do
  case $(basename "$package") in perl* | libperl*) ;; *) dpkg-deb -x "$package" "$folder/root" ;; esac
done
case $package in mariadb*) variable=MARIADB_ROOT ;; *) variable=MYSQL_ROOT ;; esac
echo "export $variable=$folder/root"
