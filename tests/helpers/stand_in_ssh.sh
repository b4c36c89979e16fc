#!/bin/sh
# Takes ssh's place: runs the command here, unless the host is down.
echo "$*" >> "$DOWN/asked"
while [ "$1" != "--" ]; do shift; done
if [ -e "$DOWN/$2" ]; then
    echo "ssh: connect to host $2 port 22: Connection timed out" >&2
    exit 255
fi
exec sh -c "$3"
