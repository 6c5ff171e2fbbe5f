#!/bin/sh
# Writes containers/locks/: what each image installs, with the hashes of all files of a release.
# Run it after a change of constraints.txt or pyproject.toml. Needs uv.
#
# Usage: containers/lock.sh
set -eu
cd "$(dirname "$0")/.."

for deployable in actor scaler emulator learner; do
    # Torch has several builds of one version, so no file of hashes could serve them all.
    python3 containers/requirements.py "$deployable" | grep -v '^torch\b' |
        uv pip compile --quiet --universal --python-version 3.11 --only-binary :all: \
            --generate-hashes --no-header --no-annotate --constraint constraints.txt \
            --output-file "containers/locks/$deployable.txt" -
done
