#!/bin/sh
# Installs the programs that tests run and that no package of the lock files brings: a mail server and a browser.
# Without root or apt nothing is installed: the tests that need a program are skipped, and fail with CI=true.
set -eu

# Each line: the program that shows whether it is installed, and its Debian package.
programs='
dovecot dovecot-imapd
chromium chromium
'

missing=''
for program in $(printf '%s' "$programs" | awk '{print $1}'); do
    PATH="$PATH:/usr/sbin" command -v "$program" >/dev/null 2>&1 ||
        missing="$missing $(printf '%s' "$programs" | awk -v p="$program" '$1 == p {print $2}')"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "not installed:$missing (needs root and apt-get); their tests are skipped" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >/dev/null && apt-get install -qq -y --no-install-recommends $missing >/dev/null ||
    echo "could not install:$missing; their tests are skipped" >&2
