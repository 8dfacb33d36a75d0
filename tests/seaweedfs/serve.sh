#!/bin/sh
# Runs a server until whoever started it ends, in whatever way: then nobody holds the other end of this
# script's standard input. A server that is asked politely takes half a minute, so it is killed.
#
#   serve.sh FOLDER PORTS PROGRAM ARGUMENTS...
#
# FOLDER has the server's files and its log, and is removed unless the server ended by itself. PORTS (with
# spaces between them) tell which sockets in /tmp are the server's: it leaves them there.
folder=$1 ports=$2
shift 2
: > "$folder/running"
exec 3<&0
"$@" < /dev/null > "$folder/log" 2>&1 3<&- &
server=$!
{
  read -r _
  rm -f "$folder/running"
  kill -9 "$server"
} <&3 &
watcher=$!
# The shell would tell of the killed server.
exec 2> /dev/null
wait "$server"
kill "$watcher"
[ -e "$folder/running" ] || rm -rf "$folder"
for port in $ports; do
  rm -f /tmp/seaweedfs-*-"$port".sock
done
