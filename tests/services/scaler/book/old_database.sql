BEGIN TRANSACTION;
CREATE TABLE events (
    job_id TEXT NOT NULL REFERENCES jobs (job_id) ON DELETE CASCADE,
    slot INTEGER NOT NULL,
    number INTEGER NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (job_id, slot)
) WITHOUT ROWID;
INSERT INTO "events" VALUES('trained',1,1,'{"number":1,"at":2.0,"kind":"claimed","round":null,"attempt":null,"count":null,"text":"x trains it"}');
CREATE TABLE idempotency (
    key TEXT PRIMARY KEY,
    body_digest TEXT NOT NULL,
    job_id TEXT NOT NULL REFERENCES jobs (job_id) ON DELETE CASCADE
) WITHOUT ROWID;
INSERT INTO "idempotency" VALUES('k1','d','trained');
CREATE TABLE jobs (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL,
    status TEXT NOT NULL,
    lease_id TEXT,
    document TEXT NOT NULL
);
INSERT INTO "jobs" VALUES(2,'trained',2,'running','l','{"job":{"job_id":"trained","spec":{"env_id":"Hopper-v5","env_kwargs":{},"wrappers":[],"name":null,"tags":[],"note":"","algorithm":"ppo","preset":"paper","hyperparameters":{},"seed":0,"steps_per_actor":256,"samples_per_round":null,"envs_per_actor":1,"rounds_in_flight":2,"actors":{"min":8,"max":64},"scaling":{"policy":"nitro","window":6,"decay":0.96,"convention":"paper"},"warm":null,"learner":null,"learner_functions":{"num":4,"slices":16,"objective":"clipped","truncation":"paper","rho":1.0,"threshold":"paper","decay":0.9,"weighting":"paper","v":3.0,"aggregation":"mean","step_size":"sqrt","drop_stragglers":true,"local_passes":1,"local_rate":0.01},"stop":{"max_rounds":50,"target_return":null,"budget_usd":5.0,"max_wall_s":null},"episodes":{"horizon":null},"evaluation":{"every_rounds":5,"episodes":10},"checkpoint":{"keep":3},"detector":{"name":"hessian","every_rounds":null,"objective":"surrogate","num_samples":256,"sampling":"proportional","num_trajectories":null,"probes":1,"max_matvecs":40,"tolerance":0.01}},"environment":{"env_id":"Hopper-v5","observation":{"shape":[11],"dtype":"float32","frame_stack":null},"action":{"kind":"continuous","low":[-1.0,-1.0,-1.0],"high":[1.0,1.0,1.0]},"max_episode_steps":1000,"episodes_are_lives":false,"preprocessing":[],"versions":{"gymnasium":"1.4.0"},"notes":[],"keeps_state":false,"snapshot_bytes":0},"learner":"gpu","status":"running","stop_reason":null,"error":null,"fails_again":false,"created_at":1.5,"started_at":null,"finished_at":null,"progress":{"rounds":0,"env_steps":0,"last_return":null,"best_return":null},"waits_for":null,"spent_usd":0.0,"switches":[],"full_hyperparameters":{}},"version":2,"lease":{"lease_id":"l","learner_id":"x","expires_at":9.0},"settled_usd":1.0,"open_attempts":[],"open_gradients":[],"num_lines":61,"reported_lines":0,"accounted_until":null,"held_carry_s":0.0,"finished_lease_id":null,"wall_started_at":null,"wall_used_s":0.0,"longest_learner_s":0.0,"costs":null,"lost_leases":0,"projected_wall_s":0.0,"serverful_wall_s":0.0,"server_wall_s":{},"environments":0,"warm":null,"warm_since":0.0,"closing_usd":0.0,"cold_pings":0,"warm_use":{"held_s":0.0,"busy_gb_s":0.0,"reused_s":0.0,"lost":0.0,"waits":0.0,"started":0.0},"final_evaluation":null,"exhausted":false,"queued_at":1.5,"rewinds":0,"num_events":1,"deleting":false}');
INSERT INTO "jobs" VALUES(3,'broken',0,'queued',NULL,'{}');
INSERT INTO "jobs" VALUES(4,'waiting',0,'queued',NULL,'{"job":{"job_id":"waiting","spec":{"env_id":"Hopper-v5","env_kwargs":{},"wrappers":[],"name":null,"tags":[],"note":"","algorithm":"ppo","preset":"paper","hyperparameters":{},"seed":0,"steps_per_actor":256,"samples_per_round":null,"envs_per_actor":1,"rounds_in_flight":2,"actors":{"min":8,"max":64},"scaling":{"policy":"nitro","window":6,"decay":0.96,"convention":"paper"},"warm":null,"learner":null,"learner_functions":{"num":4,"slices":16,"objective":"clipped","truncation":"paper","rho":1.0,"threshold":"paper","decay":0.9,"weighting":"paper","v":3.0,"aggregation":"mean","step_size":"sqrt","drop_stragglers":true,"local_passes":1,"local_rate":0.01},"stop":{"max_rounds":50,"target_return":null,"budget_usd":5.0,"max_wall_s":null},"episodes":{"horizon":null},"evaluation":{"every_rounds":5,"episodes":10},"checkpoint":{"keep":3},"detector":{"name":"hessian","every_rounds":null,"objective":"surrogate","num_samples":256,"sampling":"proportional","num_trajectories":null,"probes":1,"max_matvecs":40,"tolerance":0.01}},"environment":{"env_id":"Hopper-v5","observation":{"shape":[11],"dtype":"float32","frame_stack":null},"action":{"kind":"continuous","low":[-1.0,-1.0,-1.0],"high":[1.0,1.0,1.0]},"max_episode_steps":1000,"episodes_are_lives":false,"preprocessing":[],"versions":{"gymnasium":"1.4.0"},"notes":[],"keeps_state":false,"snapshot_bytes":0},"learner":"gpu","status":"queued","stop_reason":null,"error":null,"fails_again":false,"created_at":1.5,"started_at":null,"finished_at":null,"progress":{"rounds":0,"env_steps":0,"last_return":null,"best_return":null},"waits_for":null,"spent_usd":0.0,"switches":[],"full_hyperparameters":{}},"version":0,"lease":null,"settled_usd":0.0,"open_attempts":[],"open_gradients":[],"num_lines":0,"reported_lines":0,"accounted_until":null,"held_carry_s":0.0,"finished_lease_id":null,"wall_started_at":null,"wall_used_s":0.0,"longest_learner_s":0.0,"costs":null,"lost_leases":0,"projected_wall_s":0.0,"serverful_wall_s":0.0,"server_wall_s":{},"environments":0,"warm":null,"warm_since":0.0,"closing_usd":0.0,"cold_pings":0,"warm_use":{"held_s":0.0,"busy_gb_s":0.0,"reused_s":0.0,"lost":0.0,"waits":0.0,"started":0.0},"final_evaluation":null,"exhausted":false,"queued_at":1.5,"rewinds":0,"num_events":0,"deleting":false}');
CREATE TABLE ledger (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id TEXT NOT NULL REFERENCES jobs (job_id) ON DELETE CASCADE,
    document TEXT NOT NULL
);
INSERT INTO "ledger" VALUES(1,'trained','{"round":0,"attempt":0,"item":"learner","quantity":0.1,"unit":"second","unit_price_usd":1.0,"amount_usd":0.1}');
INSERT INTO "ledger" VALUES(2,'trained','{"round":0,"attempt":0,"item":"learner","quantity":1.1,"unit":"second","unit_price_usd":1.0,"amount_usd":1.1}');
INSERT INTO "ledger" VALUES(3,'trained','{"round":0,"attempt":0,"item":"learner","quantity":2.1,"unit":"second","unit_price_usd":1.0,"amount_usd":2.1}');
INSERT INTO "ledger" VALUES(4,'trained','{"round":0,"attempt":0,"item":"learner","quantity":3.1,"unit":"second","unit_price_usd":1.0,"amount_usd":3.1}');
INSERT INTO "ledger" VALUES(5,'trained','{"round":0,"attempt":0,"item":"learner","quantity":4.1,"unit":"second","unit_price_usd":1.0,"amount_usd":4.1}');
INSERT INTO "ledger" VALUES(6,'trained','{"round":0,"attempt":0,"item":"learner","quantity":5.1,"unit":"second","unit_price_usd":1.0,"amount_usd":5.1}');
INSERT INTO "ledger" VALUES(7,'trained','{"round":0,"attempt":0,"item":"learner","quantity":6.1,"unit":"second","unit_price_usd":1.0,"amount_usd":6.1}');
INSERT INTO "ledger" VALUES(8,'trained','{"round":1,"attempt":0,"item":"learner","quantity":7.1,"unit":"second","unit_price_usd":1.0,"amount_usd":7.1}');
INSERT INTO "ledger" VALUES(9,'trained','{"round":1,"attempt":0,"item":"learner","quantity":8.1,"unit":"second","unit_price_usd":1.0,"amount_usd":8.1}');
INSERT INTO "ledger" VALUES(10,'trained','{"round":1,"attempt":0,"item":"learner","quantity":9.1,"unit":"second","unit_price_usd":1.0,"amount_usd":9.1}');
INSERT INTO "ledger" VALUES(11,'trained','{"round":1,"attempt":0,"item":"learner","quantity":10.1,"unit":"second","unit_price_usd":1.0,"amount_usd":10.1}');
INSERT INTO "ledger" VALUES(12,'trained','{"round":1,"attempt":0,"item":"learner","quantity":11.1,"unit":"second","unit_price_usd":1.0,"amount_usd":11.1}');
INSERT INTO "ledger" VALUES(13,'trained','{"round":1,"attempt":0,"item":"learner","quantity":12.1,"unit":"second","unit_price_usd":1.0,"amount_usd":12.1}');
INSERT INTO "ledger" VALUES(14,'trained','{"round":1,"attempt":0,"item":"learner","quantity":13.1,"unit":"second","unit_price_usd":1.0,"amount_usd":13.1}');
INSERT INTO "ledger" VALUES(15,'trained','{"round":2,"attempt":0,"item":"learner","quantity":14.1,"unit":"second","unit_price_usd":1.0,"amount_usd":14.1}');
INSERT INTO "ledger" VALUES(16,'trained','{"round":2,"attempt":0,"item":"learner","quantity":15.1,"unit":"second","unit_price_usd":1.0,"amount_usd":15.1}');
INSERT INTO "ledger" VALUES(17,'trained','{"round":2,"attempt":0,"item":"learner","quantity":16.1,"unit":"second","unit_price_usd":1.0,"amount_usd":16.1}');
INSERT INTO "ledger" VALUES(18,'trained','{"round":2,"attempt":0,"item":"learner","quantity":17.1,"unit":"second","unit_price_usd":1.0,"amount_usd":17.1}');
INSERT INTO "ledger" VALUES(19,'trained','{"round":2,"attempt":0,"item":"learner","quantity":18.1,"unit":"second","unit_price_usd":1.0,"amount_usd":18.1}');
INSERT INTO "ledger" VALUES(20,'trained','{"round":2,"attempt":0,"item":"learner","quantity":19.1,"unit":"second","unit_price_usd":1.0,"amount_usd":19.1}');
INSERT INTO "ledger" VALUES(21,'trained','{"round":2,"attempt":0,"item":"learner","quantity":20.1,"unit":"second","unit_price_usd":1.0,"amount_usd":20.1}');
INSERT INTO "ledger" VALUES(22,'trained','{"round":3,"attempt":0,"item":"learner","quantity":21.1,"unit":"second","unit_price_usd":1.0,"amount_usd":21.1}');
INSERT INTO "ledger" VALUES(23,'trained','{"round":3,"attempt":0,"item":"learner","quantity":22.1,"unit":"second","unit_price_usd":1.0,"amount_usd":22.1}');
INSERT INTO "ledger" VALUES(24,'trained','{"round":3,"attempt":0,"item":"learner","quantity":23.1,"unit":"second","unit_price_usd":1.0,"amount_usd":23.1}');
INSERT INTO "ledger" VALUES(25,'trained','{"round":3,"attempt":0,"item":"learner","quantity":24.1,"unit":"second","unit_price_usd":1.0,"amount_usd":24.1}');
INSERT INTO "ledger" VALUES(26,'trained','{"round":3,"attempt":0,"item":"learner","quantity":25.1,"unit":"second","unit_price_usd":1.0,"amount_usd":25.1}');
INSERT INTO "ledger" VALUES(27,'trained','{"round":3,"attempt":0,"item":"learner","quantity":26.1,"unit":"second","unit_price_usd":1.0,"amount_usd":26.1}');
INSERT INTO "ledger" VALUES(28,'trained','{"round":3,"attempt":0,"item":"learner","quantity":27.1,"unit":"second","unit_price_usd":1.0,"amount_usd":27.1}');
INSERT INTO "ledger" VALUES(29,'trained','{"round":4,"attempt":0,"item":"learner","quantity":28.1,"unit":"second","unit_price_usd":1.0,"amount_usd":28.1}');
INSERT INTO "ledger" VALUES(30,'trained','{"round":4,"attempt":0,"item":"learner","quantity":29.1,"unit":"second","unit_price_usd":1.0,"amount_usd":29.1}');
INSERT INTO "ledger" VALUES(31,'trained','{"round":4,"attempt":0,"item":"learner","quantity":30.1,"unit":"second","unit_price_usd":1.0,"amount_usd":30.1}');
INSERT INTO "ledger" VALUES(32,'trained','{"round":4,"attempt":0,"item":"learner","quantity":31.1,"unit":"second","unit_price_usd":1.0,"amount_usd":31.1}');
INSERT INTO "ledger" VALUES(33,'trained','{"round":4,"attempt":0,"item":"learner","quantity":32.1,"unit":"second","unit_price_usd":1.0,"amount_usd":32.1}');
INSERT INTO "ledger" VALUES(34,'trained','{"round":4,"attempt":0,"item":"learner","quantity":33.1,"unit":"second","unit_price_usd":1.0,"amount_usd":33.1}');
INSERT INTO "ledger" VALUES(35,'trained','{"round":4,"attempt":0,"item":"learner","quantity":34.1,"unit":"second","unit_price_usd":1.0,"amount_usd":34.1}');
INSERT INTO "ledger" VALUES(36,'trained','{"round":5,"attempt":0,"item":"learner","quantity":35.1,"unit":"second","unit_price_usd":1.0,"amount_usd":35.1}');
INSERT INTO "ledger" VALUES(37,'trained','{"round":5,"attempt":0,"item":"learner","quantity":36.1,"unit":"second","unit_price_usd":1.0,"amount_usd":36.1}');
INSERT INTO "ledger" VALUES(38,'trained','{"round":5,"attempt":0,"item":"learner","quantity":37.1,"unit":"second","unit_price_usd":1.0,"amount_usd":37.1}');
INSERT INTO "ledger" VALUES(39,'trained','{"round":5,"attempt":0,"item":"learner","quantity":38.1,"unit":"second","unit_price_usd":1.0,"amount_usd":38.1}');
INSERT INTO "ledger" VALUES(40,'trained','{"round":5,"attempt":0,"item":"learner","quantity":39.1,"unit":"second","unit_price_usd":1.0,"amount_usd":39.1}');
INSERT INTO "ledger" VALUES(41,'trained','{"round":5,"attempt":0,"item":"learner","quantity":40.1,"unit":"second","unit_price_usd":1.0,"amount_usd":40.1}');
INSERT INTO "ledger" VALUES(42,'trained','{"round":5,"attempt":0,"item":"learner","quantity":41.1,"unit":"second","unit_price_usd":1.0,"amount_usd":41.1}');
INSERT INTO "ledger" VALUES(43,'trained','{"round":6,"attempt":0,"item":"learner","quantity":42.1,"unit":"second","unit_price_usd":1.0,"amount_usd":42.1}');
INSERT INTO "ledger" VALUES(44,'trained','{"round":6,"attempt":0,"item":"learner","quantity":43.1,"unit":"second","unit_price_usd":1.0,"amount_usd":43.1}');
INSERT INTO "ledger" VALUES(45,'trained','{"round":6,"attempt":0,"item":"learner","quantity":44.1,"unit":"second","unit_price_usd":1.0,"amount_usd":44.1}');
INSERT INTO "ledger" VALUES(46,'trained','{"round":6,"attempt":0,"item":"learner","quantity":45.1,"unit":"second","unit_price_usd":1.0,"amount_usd":45.1}');
INSERT INTO "ledger" VALUES(47,'trained','{"round":6,"attempt":0,"item":"learner","quantity":46.1,"unit":"second","unit_price_usd":1.0,"amount_usd":46.1}');
INSERT INTO "ledger" VALUES(48,'trained','{"round":6,"attempt":0,"item":"learner","quantity":47.1,"unit":"second","unit_price_usd":1.0,"amount_usd":47.1}');
INSERT INTO "ledger" VALUES(49,'trained','{"round":6,"attempt":0,"item":"learner","quantity":48.1,"unit":"second","unit_price_usd":1.0,"amount_usd":48.1}');
INSERT INTO "ledger" VALUES(50,'trained','{"round":7,"attempt":0,"item":"learner","quantity":49.1,"unit":"second","unit_price_usd":1.0,"amount_usd":49.1}');
INSERT INTO "ledger" VALUES(51,'trained','{"round":7,"attempt":0,"item":"learner","quantity":50.1,"unit":"second","unit_price_usd":1.0,"amount_usd":50.1}');
INSERT INTO "ledger" VALUES(52,'trained','{"round":7,"attempt":0,"item":"learner","quantity":51.1,"unit":"second","unit_price_usd":1.0,"amount_usd":51.1}');
INSERT INTO "ledger" VALUES(53,'trained','{"round":7,"attempt":0,"item":"learner","quantity":52.1,"unit":"second","unit_price_usd":1.0,"amount_usd":52.1}');
INSERT INTO "ledger" VALUES(54,'trained','{"round":7,"attempt":0,"item":"learner","quantity":53.1,"unit":"second","unit_price_usd":1.0,"amount_usd":53.1}');
INSERT INTO "ledger" VALUES(55,'trained','{"round":7,"attempt":0,"item":"learner","quantity":54.1,"unit":"second","unit_price_usd":1.0,"amount_usd":54.1}');
INSERT INTO "ledger" VALUES(56,'trained','{"round":7,"attempt":0,"item":"learner","quantity":55.1,"unit":"second","unit_price_usd":1.0,"amount_usd":55.1}');
INSERT INTO "ledger" VALUES(57,'trained','{"round":8,"attempt":0,"item":"learner","quantity":56.1,"unit":"second","unit_price_usd":1.0,"amount_usd":56.1}');
INSERT INTO "ledger" VALUES(58,'trained','{"round":8,"attempt":0,"item":"learner","quantity":57.1,"unit":"second","unit_price_usd":1.0,"amount_usd":57.1}');
INSERT INTO "ledger" VALUES(59,'trained','{"round":8,"attempt":0,"item":"learner","quantity":58.1,"unit":"second","unit_price_usd":1.0,"amount_usd":58.1}');
INSERT INTO "ledger" VALUES(60,'trained','{"round":8,"attempt":0,"item":"learner","quantity":59.1,"unit":"second","unit_price_usd":1.0,"amount_usd":59.1}');
INSERT INTO "ledger" VALUES(61,'trained','{"round":8,"attempt":0,"item":"learner","quantity":60.1,"unit":"second","unit_price_usd":1.0,"amount_usd":60.1}');
CREATE TABLE rounds (
    job_id TEXT NOT NULL REFERENCES jobs (job_id) ON DELETE CASCADE,
    round INTEGER NOT NULL,
    ratio REAL,
    document TEXT NOT NULL,
    PRIMARY KEY (job_id, round)
) WITHOUT ROWID;
INSERT INTO "rounds" VALUES('trained',0,3.33333333333333314829e-01,'{"round":0,"attempts":[{"plan":{"job_id":"job","round":0,"attempt":0,"policy_version":0,"num_actors":4,"num_evaluations":0,"requested":4,"boosting_score":null,"ratio":null,"reason":"","fragment_noise":false,"deadline_s":1.0,"age_s":0.0,"quorum":2,"stop":null,"spent_usd":0.0,"settled":[],"settled_from":0,"settled_rounds":0},"lease_id":"a","planned_at":0.0,"order_name":null,"samples":null,"evaluations":null,"launches":null}],"ratio":0.3333333333333333,"memory":null,"result":null,"abandoned":false}');
INSERT INTO "rounds" VALUES('trained',1,NULL,'{"round":1,"attempts":[{"plan":{"job_id":"job","round":1,"attempt":0,"policy_version":1,"num_actors":4,"num_evaluations":0,"requested":4,"boosting_score":null,"ratio":null,"reason":"","fragment_noise":false,"deadline_s":1.0,"age_s":0.0,"quorum":2,"stop":null,"spent_usd":0.0,"settled":[],"settled_from":0,"settled_rounds":0},"lease_id":"a","planned_at":0.0,"order_name":null,"samples":null,"evaluations":null,"launches":null}],"ratio":null,"memory":null,"result":null,"abandoned":false}');
INSERT INTO "rounds" VALUES('trained',2,2.33333333333333348136e+00,'{"round":2,"attempts":[{"plan":{"job_id":"job","round":2,"attempt":0,"policy_version":2,"num_actors":4,"num_evaluations":0,"requested":4,"boosting_score":null,"ratio":null,"reason":"","fragment_noise":false,"deadline_s":1.0,"age_s":0.0,"quorum":2,"stop":null,"spent_usd":0.0,"settled":[],"settled_from":0,"settled_rounds":0},"lease_id":"a","planned_at":0.0,"order_name":null,"samples":null,"evaluations":null,"launches":null}],"ratio":2.3333333333333335,"memory":null,"result":null,"abandoned":false}');
CREATE INDEX jobs_by_status ON jobs (status, position);
CREATE INDEX jobs_by_lease ON jobs (lease_id) WHERE lease_id IS NOT NULL;
CREATE INDEX jobs_with_open_attempts ON jobs (position)
    WHERE CASE WHEN json_valid(document) THEN json_array_length(document, '$.open_attempts') + coalesce(json_array_length(document, '$.open_gradients'), 0) END > 0;
CREATE INDEX ledger_by_job ON ledger (job_id, position);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('jobs',4);
INSERT INTO "sqlite_sequence" VALUES('ledger',61);
COMMIT;
