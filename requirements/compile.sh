#!/usr/bin/env bash
# Resolve the pins anew: name, version and hashes; no address of any registry.
#
# runtime.txt is what remit needs to run, build.txt what it needs to be installed, dev.txt what its
# checks need on top. One is a constraint of the next, so that they never disagree.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

"$python" -m pip install --quiet --disable-pip-version-check pip-tools

compile() {
    "$python" -m piptools compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras \
        --no-header --no-emit-options --no-emit-index-url --no-emit-find-links \
        --no-emit-trusted-host "$@" pyproject.toml
}

compile --output-file requirements/runtime.txt
compile --constraint requirements/runtime.txt \
    --only-build-deps --build-deps-for editable --output-file requirements/build.txt
compile --constraint requirements/runtime.txt --constraint requirements/build.txt \
    --extra dev --output-file requirements/dev.txt

if grep -nE '://|^-' requirements/*.txt; then
    echo "a pin file holds an address or an option: see above" >&2
    exit 1
fi
