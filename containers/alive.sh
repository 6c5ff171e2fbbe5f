#!/bin/bash
# Ends with 0 when the service at a port of the container says that it is well.
#
# Usage: alive.sh PORT
#
# Bash speaks TCP by itself. Starting Python every 15 s would take a part of the scaler's quarter of a core.
exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
printf 'GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' >&3
read -r -t 4 _ status _ <&3
[ "$status" = 200 ]
