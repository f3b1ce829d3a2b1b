#!/bin/bash
# Run once, where the primary's database is made: the standby's role, and COMMIT that waits for it.
set -euo pipefail
password=$(cat /run/secrets/replication.password)
psql --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --set ON_ERROR_STOP=1 --set password="$password" <<'SQL'
CREATE ROLE replicator LOGIN REPLICATION PASSWORD :'password';
SELECT pg_create_physical_replication_slot('standby');
ALTER SYSTEM SET synchronous_standby_names = 'standby';
SQL
echo 'host replication replicator all scram-sha-256' >>"$PGDATA/pg_hba.conf"
