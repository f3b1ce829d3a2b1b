#!/bin/bash
# Copies the primary where there is no data yet, and follows it.
set -euo pipefail
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  rm -rf "$PGDATA"
  mkdir -p "$PGDATA" && chmod 700 "$PGDATA"
  PGPASSWORD=$(cat /run/secrets/replication.password) pg_basebackup --pgdata "$PGDATA" --checkpoint fast \
    --wal-method stream --slot standby --write-recovery-conf \
    --dbname 'host=primary user=replicator application_name=standby'
  # Once promoted it has no standby: it must not wait for itself.
  sed -i '/^synchronous_standby_names/d' "$PGDATA/postgresql.auto.conf"
fi
exec postgres -c config_file=/etc/postgresql/postgresql.conf
