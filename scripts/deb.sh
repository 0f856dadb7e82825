#!/usr/bin/env bash
# A package for Debian of what the image has in /opt/msgplatform, with deploy/systemd and deploy/debian: units,
# configuration, user and folders. Nothing is fetched or compiled where it is installed.
#
#     scripts/deb.sh [IMAGE [FOLDER]]      default: dist/image, which scripts/image.sh makes, and dist
#
# With `apt-get install umoci`.
set -euo pipefail
cd "$(dirname "$0")/.."

image=${1:-dist/image} folder=${2:-dist}
version=$(sed -n 's/^version = "\([^"]*\)".*/\1/p' pyproject.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

umoci unpack --rootless --image "$image:$version" "$work/image"
root=$work/root
mkdir -p "$root"/{opt,lib/systemd/system,usr/sbin,usr/share/doc/msgplatform,etc,DEBIAN}
mv "$work/image/rootfs/opt/msgplatform" "$root/opt"
cp deploy/systemd/* "$root/lib/systemd/system"
cp LICENSE "$root/usr/share/doc/msgplatform/copyright"
install -m 755 deploy/debian/msgplatform "$root/usr/sbin"
install -m 755 deploy/debian/{postinst,prerm,postrm} "$root/DEBIAN"
python=$(basename "$root"/opt/msgplatform/.venv/lib/python3.*)
minor=${python#python3.}
# An environment of Python is for its minor version only.
{
  sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$(dpkg --print-architecture)/" deploy/debian/control
  echo "Depends: python3 (>= 3.$minor), python3 (<< 3.$((minor + 1))), ca-certificates, tzdata, libmariadb3, passwd"
  echo "Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)"
} >"$root/DEBIAN/control"
chmod -R u=rwX,go=rX "$root"
dpkg-deb --root-owner-group -Zzstd --build "$root" "$folder" >&2
