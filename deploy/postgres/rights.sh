#!/bin/bash
# Roles, rights and passwords, as the owner of the tables.
set -euo pipefail
secret() { cat "/run/secrets/$1.password"; }
PGPASSWORD=$(secret postgres) psql --host primary --username postgres --dbname proposer \
  --set ON_ERROR_STOP=1 --set gateway="$(secret gateway)" --set dashboard="$(secret dashboard)" --file /rights.sql
