CREATE TABLE account_groups (
    name     TEXT NOT NULL PRIMARY KEY,
    document TEXT NOT NULL
);
INSERT INTO "account_groups" VALUES('vision','{"name": "vision", "limits": {"gpu": 2}}');
CREATE TABLE accounts (
    id       BIGINT NOT NULL PRIMARY KEY,
    folded   TEXT   NOT NULL UNIQUE,
    document TEXT   NOT NULL
);
INSERT INTO "accounts" VALUES(1,'ann','{"id": 1, "name": "ann", "admin": true, "groups": ["vision"], "limits": {"cpu": 4000}, "created": 1794898000}');
INSERT INTO "accounts" VALUES(2,'bob~2','{"id": 2, "name": "bob", "disabled": true, "deleted": true}');
CREATE TABLE audit (
    seq     BIGINT NOT NULL PRIMARY KEY,
    id      TEXT   NOT NULL UNIQUE,
    at      BIGINT NOT NULL,
    actor   TEXT   NOT NULL,
    action  TEXT   NOT NULL,
    subject TEXT   NOT NULL,
    detail  TEXT   NOT NULL,
    request TEXT   NOT NULL,
    digest  TEXT   NOT NULL
);
INSERT INTO "audit" VALUES(1,'a1',1794898000000,'','user.add','ann','first','','d1');
CREATE TABLE audit_head (
    one    BIGINT NOT NULL PRIMARY KEY,
    seq    BIGINT NOT NULL,
    digest TEXT   NOT NULL
);
INSERT INTO "audit_head" VALUES(1,1,'d1');
CREATE TABLE jobs (
    id         TEXT   NOT NULL PRIMARY KEY,
    owner      TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    status     TEXT   NOT NULL,
    is_final   BIGINT NOT NULL,
    idem_key   TEXT,
    snapshot   TEXT,
    place      BIGINT NOT NULL,
    submitted  BIGINT NOT NULL,
    finished   BIGINT,
    document   TEXT   NOT NULL
);
INSERT INTO "jobs" VALUES('j_1m7m4c7ge1vejj','ann','kept','Succeeded',1,'904c796631b483d342a0a47752c4cf5f','fe0c21e794d193260f88ad50cc622a25fc5ca4a8e3b077bd713ebdd35aea0a8d',0,1794898271758,1794898272061,'{"id":"j_1m7m4c7ge1vejj","user":"ann","spec":{"name":"kept","package":"/pfs/dc1/home/ann/pkg","snapshot":"fe0c21e794d193260f88ad50cc622a25fc5ca4a8e3b077bd713ebdd35aea0a8d","parallelism":1,"trainer":{"cpu":1000,"memory":1073741824,"gpu":0},"pservers":1,"pserver":{"cpu":1000,"memory":1073741824,"gpu":0},"entry":"sh train.sh","ps_entry":"paddle pserver","ps_ports":2,"topology":null,"passes":1,"image":null,"registry":null,"envs":{"A":"B"},"priority":0,"retries":0,"max_runtime":null,"start_limit":"PT10M","grace":"PT30S","shell_env":{"HOME":"/home/ann","PATH":"/usr/bin:/bin"}},"order":0,"key":"904c796631b483d342a0a47752c4cf5f","phase":{"final":"succeeded"},"submitted_at":"2026-11-17T06:51:11.758766128Z","admitted_at":"2026-11-17T06:51:11.758766128Z","started_at":"2026-11-17T06:51:11.941430453Z","finished_at":"2026-11-17T06:51:12.061165531Z","message":"its trainer succeeded","note":null,"placement":{"workers":[{"node":"node-1"},{"node":"node-1"}]},"workers":[{"role":"pserver","index":0,"name":"kept-pserver-qdba2","address":"127.180.242.121","attempt":1,"status":"ended","restarts":0,"started_at":"2026-11-17T06:51:11.869443549Z","ended_at":"2026-11-17T06:51:12.061165531Z","exit":{"code":null,"signal":15,"oom":false,"clash":null,"log_end":111,"message":null,"stopped":true,"at":"2026-11-17T06:51:12.061165531Z"}},{"role":"trainer","index":0,"name":"kept-trainer-yzkjg","address":"127.180.242.122","attempt":1,"status":"ended","restarts":0,"started_at":"2026-11-17T06:51:11.956262446Z","ended_at":"2026-11-17T06:51:12.001059823Z","exit":{"code":0,"signal":null,"oom":false,"clash":null,"log_end":310,"message":null,"stopped":false,"at":"2026-11-17T06:51:12.001059823Z"}}],"culprit":null,"kill_requested":false,"remove_when_final":false,"timeline":{"moments":[{"at":"2026-11-17T06:51:11.758766128Z","text":"submitted"},{"at":"2026-11-17T06:51:11.758766128Z","text":"admitted"},{"at":"2026-11-17T06:51:11.941430453Z","text":"all workers are ready: starting the trainers"},{"at":"2026-11-17T06:51:12.017681667Z","text":"stopping: its trainer succeeded"},{"at":"2026-11-17T06:51:12.078706432Z","text":"succeeded"}],"left_out":0},"timers":{"assembling_since":null,"running_since":null,"stopping_since":"2026-11-17T06:51:12.017681667Z"},"revision":10,"changed_at":"2026-11-17T06:51:12.078706432Z"}');
INSERT INTO "jobs" VALUES('j_1m7m4c7ge1vejk','ann','waiting','Pending',0,NULL,'fe0c21e794d193260f88ad50cc622a25fc5ca4a8e3b077bd713ebdd35aea0a8d',1,1794898271758,NULL,'{"id":"j_1m7m4c7ge1vejk","user":"ann","spec":{"name":"waiting","package":"/pfs/dc1/home/ann/pkg","snapshot":"fe0c21e794d193260f88ad50cc622a25fc5ca4a8e3b077bd713ebdd35aea0a8d","parallelism":1,"trainer":{"cpu":1000,"memory":1073741824,"gpu":0},"pservers":1,"pserver":{"cpu":1000,"memory":1073741824,"gpu":0},"entry":"sh train.sh","ps_entry":"paddle pserver","ps_ports":2,"topology":null,"passes":1,"image":null,"registry":null,"envs":{"A":"B"},"priority":0,"retries":0,"max_runtime":null,"start_limit":"PT10M","grace":"PT30S","shell_env":{"HOME":"/home/ann","PATH":"/usr/bin:/bin"}},"order":1,"key":null,"phase":"pending","submitted_at":"2026-11-17T06:51:11.758766128Z","admitted_at":null,"started_at":null,"finished_at":null,"message":"waits for its turn","note":null,"placement":null,"workers":[],"culprit":null,"kill_requested":false,"remove_when_final":false,"timeline":{"moments":[{"at":"2026-11-17T06:51:11.758766128Z","text":"submitted"}],"left_out":0},"timers":{"assembling_since":null,"running_since":null,"stopping_since":null},"revision":1,"changed_at":"2026-11-17T06:51:11.758766128Z"}');
CREATE TABLE schema_version (version BIGINT NOT NULL);
INSERT INTO "schema_version" VALUES(1);
INSERT INTO "schema_version" VALUES(2);
INSERT INTO "schema_version" VALUES(3);
INSERT INTO "schema_version" VALUES(4);
INSERT INTO "schema_version" VALUES(5);
INSERT INTO "schema_version" VALUES(6);
CREATE TABLE secrets (
    owner   TEXT   NOT NULL,
    kind    TEXT   NOT NULL,
    name    TEXT   NOT NULL,
    sealed  TEXT   NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (owner, kind, name)
);
INSERT INTO "secrets" VALUES('ann','secret','key','c2VhbGVk',1794898000);
CREATE TABLE tokens (
    digest     TEXT   NOT NULL PRIMARY KEY,
    owner      TEXT   NOT NULL,
    credential TEXT   NOT NULL,
    expires    BIGINT NOT NULL
, scopes TEXT NOT NULL DEFAULT 'read,submit,files,admin', id TEXT NOT NULL DEFAULT '', name TEXT NOT NULL DEFAULT 'login', account BIGINT NOT NULL DEFAULT 0, created BIGINT NOT NULL DEFAULT 0, since BIGINT NOT NULL DEFAULT 0);
INSERT INTO "tokens" VALUES('00ff','ann','11ee',4102444800,'read,submit','t1','nightly',1,1794898000,1794898000);
CREATE TABLE unknown_runs (
    after_id TEXT NOT NULL,
    upto_id  TEXT NOT NULL
);
CREATE TABLE usage_days (
    owner  TEXT   NOT NULL,
    day    BIGINT NOT NULL,
    jobs   BIGINT NOT NULL,
    millis BIGINT NOT NULL,
    mib    BIGINT NOT NULL,
    cards  BIGINT NOT NULL,
    PRIMARY KEY (owner, day)
);
INSERT INTO "usage_days" VALUES('ann',20774,3,3600000000,100,0);
CREATE UNIQUE INDEX jobs_by_key ON jobs (owner, idem_key) WHERE idem_key IS NOT NULL;
CREATE INDEX jobs_by_owner ON jobs (owner, id);
CREATE INDEX jobs_by_name ON jobs (owner, name, id);
CREATE INDEX jobs_active ON jobs (place) WHERE is_final = 0;
CREATE INDEX jobs_finished ON jobs (owner, finished) WHERE is_final = 1;
CREATE INDEX tokens_by_expiry ON tokens (expires);
CREATE INDEX tokens_by_owner ON tokens (owner);
