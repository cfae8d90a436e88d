#!/bin/sh
# Run by Postgres's container when its volume is new: the gateway's role owns the database and is no superuser, another
# one may only read. Passwords are those that make_secrets.py made.
set -eu
secrets=${SECRETS:-/run/holeshot/secrets}
psql --set ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname "$POSTGRES_DB" \
  --set database="$POSTGRES_DB" --set owner="$(cat "$secrets/postgres_password")" \
  --set reader="$(cat "$secrets/reader_password")" <<'SQL'
create role holeshot login password :'owner';
alter database :"database" owner to holeshot;
alter schema public owner to holeshot;
create role holeshot_reader login password :'reader';
alter role holeshot_reader set default_transaction_read_only = on;
grant connect on database :"database" to holeshot_reader;
grant usage on schema public to holeshot_reader;
alter default privileges for role holeshot in schema public grant select on tables to holeshot_reader;
SQL
