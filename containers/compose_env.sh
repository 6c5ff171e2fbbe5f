#!/usr/bin/env sh
# Writes .env and the tokens that docker-compose.yml needs, once; what is there already is kept.
#
# They are readable within its folder, because the containers' user differs from yours, and the
# folder is yours alone.
set -eu
cd "$(dirname "$0")/.."
umask 077

mkdir -p .secrets
chmod 700 .secrets
for name in token viewer_token emulator_token; do
  if [ ! -s ".secrets/$name" ]; then
    token=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')
    printf '%s\n' "$token" >".secrets/$name"
    chmod 444 ".secrets/$name"
  fi
done

if [ ! -e .env ]; then
  cat >.env <<END
COMPOSE_PROJECT_NAME=nitro
NITRO_API_URL=http://127.0.0.1:8080
NITRO_TOKEN_FILE=./.secrets/token
END
fi
chmod 600 .env
echo "Ready. Start with \`docker compose up --build\`, then:"
echo "  NITRO_TOKEN_FILE=.secrets/token nitro train --api-url http://127.0.0.1:8080 CartPole-v1"
