-- docs/operating.md, "Roles and rights": gateways change no tables, dashboards read three views.
SELECT 'CREATE ROLE ' || name || ' LOGIN' FROM unnest(ARRAY['proposer_gateway', 'proposer_dashboard']) AS r (name)
 WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) \gexec
ALTER ROLE proposer_gateway PASSWORD :'gateway';
ALTER ROLE proposer_dashboard PASSWORD :'dashboard';

GRANT USAGE ON SCHEMA proposer TO proposer_gateway;
GRANT SELECT ON ALL TABLES IN SCHEMA proposer TO proposer_gateway;
GRANT INSERT ON proposer.record TO proposer_gateway;
GRANT UPDATE ON proposer.head TO proposer_gateway;
GRANT INSERT, UPDATE, DELETE ON proposer.gateway, proposer.snapshot TO proposer_gateway;
GRANT INSERT, UPDATE ON proposer.budget TO proposer_gateway;
GRANT pg_read_all_stats TO proposer_gateway; -- serve --check then sees the standby

GRANT USAGE ON SCHEMA proposer TO proposer_dashboard;
GRANT SELECT ON proposer.proposal, proposer.candidate, proposer.slot TO proposer_dashboard;
