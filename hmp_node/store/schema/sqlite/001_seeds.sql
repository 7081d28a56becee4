-- 001: every table of the seeds, under the seeds' own names, in the seeds' order of columns.
--
-- Published type map from the seeds to SQLite (tests/store/test_schema.py holds this file to it):
--   INTEGER, TEXT, REAL, DATETIME, CHAR(64)   as they are
--   BIGSERIAL, bigint                         INTEGER
--   timestamptz                               TEXT      UTC, YYYY-MM-DDTHH:MM:SS.ffffffZ
--   jsonb, CHAR(64)[]                         TEXT      canonical JSON; an array for CHAR(64)[]
--   ENUM                                      TEXT      with a CHECK of its values
--   tsvector (generated)                      TEXT      the lemma text that is searched
--   vector(1024), NULL                        BLOB      always NULL here; vectors have a table of their own
--
-- Ids are AUTOINCREMENT where rows may be deleted: an id once told to a person, a model or a peer never
-- comes back as another row. Every time column holds the text form above, DATETIME ones too.
-- What the project adds to these tables stands in side tables (002).

-- "HMPN": whose file this is. The number of the last applied schema file is in user_version.
PRAGMA application_id = 0x484D504E;

-- ---------------------------------------------------------------- db_structure: the twelve tables

CREATE TABLE diary_entries (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    text      TEXT NOT NULL,
    tags      TEXT NOT NULL DEFAULT '',                  -- normalised, comma separated
    priority  INTEGER NOT NULL DEFAULT 0,                -- -1 low, 0 normal, 1 important, 2 urgent
    timestamp TEXT NOT NULL,
    llm_id    TEXT
);

CREATE TABLE concepts (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    name        TEXT NOT NULL UNIQUE,
    description TEXT,
    timestamp   TEXT NOT NULL,
    llm_id      TEXT
);

CREATE TABLE links (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    from_concept_id INTEGER NOT NULL REFERENCES concepts (id) ON DELETE CASCADE,
    to_concept_id   INTEGER NOT NULL REFERENCES concepts (id) ON DELETE CASCADE,
    relation_type   TEXT NOT NULL,                       -- is_a, related_to, part_of, ...: an open list
    timestamp       TEXT NOT NULL,
    llm_id          TEXT
);
CREATE INDEX links_from ON links (from_concept_id);
CREATE INDEX links_to ON links (to_concept_id);

CREATE TABLE notes (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    text      TEXT NOT NULL,
    tags      TEXT NOT NULL DEFAULT '',                  -- as shown; matched through note_tags
    source    TEXT NOT NULL                              -- the seed's three, the loop's, and peer:<DID>
              CHECK (source IN ('user', 'llm', 'system', 'cli') OR source LIKE 'llm:%' OR source LIKE 'peer:%'),
    links     TEXT NOT NULL DEFAULT '',                  -- JSON array, or comma separated when read
    read      INTEGER NOT NULL DEFAULT 0 CHECK (read IN (0, 1)),
    hidden    INTEGER NOT NULL DEFAULT 0 CHECK (hidden IN (0, 1)),
    priority  INTEGER NOT NULL DEFAULT 0,
    timestamp TEXT NOT NULL,
    llm_id    TEXT
);
CREATE INDEX notes_unread ON notes (id) WHERE read = 0;

CREATE TABLE process_log (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    name      TEXT NOT NULL,
    value     TEXT,
    tags      TEXT NOT NULL DEFAULT '',
    status    TEXT NOT NULL                              -- six of the seed's table, two of its cycle for live ones
              CHECK (status IN ('ok', 'warning', 'error', 'timeout', 'offline', 'close', 'in_progress', 'pending')),
    priority  INTEGER NOT NULL DEFAULT 0,
    timestamp TEXT NOT NULL,
    llm_id    TEXT,
    result    TEXT GENERATED ALWAYS AS (value) VIRTUAL   -- the cycle's name for value
);
CREATE INDEX process_log_open ON process_log (id) WHERE status <> 'close';

CREATE TABLE llm_memory (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    title      TEXT,
    content    TEXT NOT NULL,
    tags       TEXT NOT NULL DEFAULT '',
    created_at DATETIME NOT NULL,
    updated_at DATETIME NOT NULL,
    llm_id     TEXT
);

CREATE TABLE llm_recent_responses (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    timestamp TEXT NOT NULL,
    role      TEXT NOT NULL CHECK (role IN ('assistant', 'user')),
    content   TEXT NOT NULL,
    llm_id    TEXT
);

CREATE TABLE agent_tables (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    table_name  TEXT NOT NULL UNIQUE,
    description TEXT,
    schema      TEXT NOT NULL,
    created_at  DATETIME NOT NULL,
    llm_id      TEXT
);

CREATE TABLE agent_scripts (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    name        TEXT NOT NULL,
    version     TEXT NOT NULL,
    code        TEXT NOT NULL,
    language    TEXT NOT NULL DEFAULT 'python',
    description TEXT,
    tags        TEXT NOT NULL DEFAULT '',
    created_at  DATETIME NOT NULL,
    updated_at  DATETIME NOT NULL,
    llm_id      TEXT,
    UNIQUE (name, version)
);

CREATE TABLE agent_peers (
    id            TEXT PRIMARY KEY NOT NULL,             -- the peer's DID
    name          TEXT,                                  -- as announced: shown, never a way to address
    addresses     TEXT NOT NULL DEFAULT '[]',            -- JSON array; kept row by row in peer_addresses
    tags          TEXT NOT NULL DEFAULT '',              -- Friend, Local, DHT, Postman, ...: ours to give
    status        TEXT NOT NULL DEFAULT 'offline',       -- online, offline, untrusted, ...: an open list
    last_seen     DATETIME,
    description   TEXT,
    capabilities  TEXT NOT NULL DEFAULT '{}',            -- JSON object of flags: the peer's claim
    pubkey        TEXT,
    software_info TEXT,
    registered_at DATETIME NOT NULL
);

CREATE TABLE llm_registry (
    id            TEXT PRIMARY KEY NOT NULL,
    name          TEXT NOT NULL,
    description   TEXT,
    registered_at DATETIME NOT NULL
);

CREATE TABLE diary_graph_index (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    source_entry_id INTEGER NOT NULL REFERENCES diary_entries (id) ON DELETE CASCADE,
    target_entry_id INTEGER NOT NULL REFERENCES diary_entries (id) ON DELETE CASCADE,
    relation        TEXT NOT NULL,                       -- supports, contradicts, references: an open list
    strength        REAL NOT NULL DEFAULT 1.0 CHECK (strength BETWEEN 0 AND 1),
    context         TEXT,
    timestamp       TEXT NOT NULL
);
CREATE INDEX diary_graph_source ON diary_graph_index (source_entry_id);
CREATE INDEX diary_graph_target ON diary_graph_index (target_entry_id);

-- ---------------------------------------------------------------- data_model: the project memory

CREATE TABLE projects (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL UNIQUE,                     -- kebab-case
    summary    TEXT,
    status     TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'archived')),
    metadata   TEXT NOT NULL DEFAULT '{}',
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
);

CREATE TABLE memories (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id  INTEGER REFERENCES projects (id),        -- NULL: of no project, global
    type        TEXT NOT NULL,                           -- fact, note, session_state, document, entity, ...
    title       TEXT,
    content     TEXT NOT NULL,
    content_tsv TEXT NOT NULL DEFAULT '',                -- lemma text
    embedding   BLOB CHECK (embedding IS NULL),          -- PostgreSQL only
    metadata    TEXT NOT NULL DEFAULT '{}',
    created_at  TEXT NOT NULL,
    updated_at  TEXT NOT NULL
);
CREATE INDEX memories_project ON memories (project_id, type);

CREATE TABLE memory_links (
    source_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    target_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    link_type TEXT NOT NULL,                             -- related, parent, derived-from, ...: an open list
    PRIMARY KEY (source_id, target_id, link_type)
);
CREATE INDEX memory_links_target ON memory_links (target_id);

CREATE TABLE sessions (                                  -- a work session; not the log's conversation
    id                 INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id         INTEGER NOT NULL REFERENCES projects (id),
    session_summary    TEXT,
    todo_json          TEXT NOT NULL DEFAULT '{"tasks":[]}',
    changes            TEXT,
    bugs               TEXT,
    architecture_notes TEXT,
    created_at         TEXT NOT NULL
);
CREATE INDEX sessions_project ON sessions (project_id);

-- ---------------------------------------------------------------- log_schema: the immutable message log

-- core.players and core.hashtags: what the log's hashes stand for.
CREATE TABLE core_players (
    hash        CHAR(64) PRIMARY KEY NOT NULL,           -- SHA-256 of did_or_name
    did_or_name TEXT NOT NULL,
    kind        TEXT NOT NULL CHECK (kind IN ('user', 'agent', 'orchestrator', 'system', 'tool')),
    created_at  TEXT NOT NULL
);

CREATE TABLE core_hashtags (
    hash CHAR(64) PRIMARY KEY NOT NULL,                  -- SHA-256 of tag
    tag  TEXT NOT NULL
);

CREATE TABLE log_messages (
    id             INTEGER PRIMARY KEY,
    hash           CHAR(64) NOT NULL UNIQUE,             -- protocol/spec/log.md 3
    session_hash   CHAR(64) NOT NULL,
    sender_type    TEXT NOT NULL CHECK (sender_type IN ('user', 'agent', 'orchestrator', 'system', 'tool')),
    sender_id      CHAR(64) NOT NULL REFERENCES core_players (hash),
    receiver_type  TEXT NOT NULL CHECK (receiver_type IN ('user', 'agent', 'orchestrator', 'system', 'tool')),
    receiver_id    CHAR(64) NOT NULL REFERENCES core_players (hash),
    leader_id      CHAR(64) REFERENCES core_players (hash),
    role           TEXT NOT NULL,
    content        TEXT,                                 -- NULL only once redacted
    attachments    TEXT,
    prev_hash      CHAR(64),                             -- NULL: first message of its session
    context_hashes TEXT NOT NULL DEFAULT '[]',
    hashtags       TEXT NOT NULL DEFAULT '[]',           -- indexed in log_hashtags
    ambient        TEXT,
    created_at     TEXT NOT NULL
);
CREATE INDEX log_messages_session_hash ON log_messages (session_hash);
CREATE INDEX log_messages_sender_id ON log_messages (sender_id);
CREATE INDEX log_messages_receiver_id ON log_messages (receiver_id);
CREATE UNIQUE INDEX log_messages_prev_hash ON log_messages (prev_hash);  -- a message has one successor
CREATE UNIQUE INDEX log_messages_first ON log_messages (session_hash) WHERE prev_hash IS NULL;
CREATE INDEX log_messages_created_at ON log_messages (created_at);

-- The seed's GIN index on hashtags.
CREATE TABLE log_hashtags (
    hashtag    CHAR(64) NOT NULL,
    message_id INTEGER NOT NULL REFERENCES log_messages (id),
    PRIMARY KEY (hashtag, message_id)
) WITHOUT ROWID;

-- Append only. The INSERT guard is there because INSERT OR REPLACE deletes the old row without asking the
-- DELETE trigger unless recursive_triggers is on: it covers every unique rule of the table.
CREATE TRIGGER log_messages_no_update BEFORE UPDATE ON log_messages
BEGIN
    SELECT RAISE(ABORT, 'log_messages is append-only: no UPDATE');
END;
CREATE TRIGGER log_messages_no_delete BEFORE DELETE ON log_messages
BEGIN
    SELECT RAISE(ABORT, 'log_messages is append-only: no DELETE');
END;
CREATE TRIGGER log_messages_no_replace BEFORE INSERT ON log_messages
BEGIN
    SELECT RAISE(ABORT, 'log_messages is append-only: no such id twice') FROM log_messages WHERE id = NEW.id;
    SELECT RAISE(ABORT, 'log_messages is append-only: no such hash twice') FROM log_messages WHERE hash = NEW.hash;
    SELECT RAISE(ABORT, 'log_messages is append-only: a message has one successor')
        FROM log_messages WHERE prev_hash = NEW.prev_hash;
    SELECT RAISE(ABORT, 'log_messages is append-only: a session has one beginning')
        FROM log_messages WHERE NEW.prev_hash IS NULL AND session_hash = NEW.session_hash AND prev_hash IS NULL;
END;
