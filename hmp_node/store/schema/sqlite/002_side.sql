-- 002: side tables: what the node adds beside the seeds' tables.
--
-- Times are text, UTC, YYYY-MM-DDTHH:MM:SS.ffffffZ. DIDs are text. Booleans are 0 and 1.

-- ---------------------------------------------------------------- containers

-- Every container seen or made. After a purge only the DID stays (raw NULL): seen is seen for ever.
-- A DID is random, so every index over one touches a page of its own for each container: this table has the only
-- one, and other tables refer to the id.
CREATE TABLE containers (
    id         INTEGER PRIMARY KEY,
    did        TEXT NOT NULL UNIQUE,
    class      TEXT,
    sender_did TEXT,
    timestamp  TEXT,
    expires_at TEXT,
    direction  TEXT NOT NULL CHECK (direction IN ('in', 'out')),
    raw        BLOB,                                     -- mesh form (protocol/spec/container.md)
    stored_at  TEXT NOT NULL
);
CREATE INDEX containers_expires ON containers (expires_at) WHERE expires_at IS NOT NULL AND raw IS NOT NULL;

-- ---------------------------------------------------------------- notes as mail

-- The mail side of a row of notes.
CREATE TABLE mail (
    note_id       INTEGER PRIMARY KEY REFERENCES notes (id),
    container_did TEXT,                                  -- NULL: local, or waiting for a recipient's key
    container_id  INTEGER UNIQUE REFERENCES containers (id),
    author_did    TEXT NOT NULL,
    direction     TEXT NOT NULL CHECK (direction IN ('in', 'out', 'local')),
    stream        TEXT,
    seq           INTEGER,                               -- the sender's number within the stream
    position      INTEGER UNIQUE,                        -- order of display; NULL while held for a gap
    held_until    TEXT,
    quarantined   INTEGER NOT NULL DEFAULT 0 CHECK (quarantined IN (0, 1)),
    reply_to      TEXT,
    received_at   TEXT NOT NULL,
    deleted       INTEGER NOT NULL DEFAULT 0 CHECK (deleted IN (0, 1))
);
CREATE INDEX mail_direction ON mail (direction, position);
CREATE INDEX mail_author ON mail (author_did, stream, seq);
CREATE INDEX mail_held ON mail (held_until) WHERE held_until IS NOT NULL;
CREATE INDEX mail_quarantined ON mail (author_did) WHERE quarantined = 1;
CREATE INDEX mail_reply_to ON mail (reply_to) WHERE reply_to IS NOT NULL;

-- The next seq to show of one sender's stream, and the next to give a recipient.
CREATE TABLE inbound_order (
    sender_did TEXT NOT NULL,
    stream     TEXT NOT NULL,
    next_seq   INTEGER NOT NULL,
    PRIMARY KEY (sender_did, stream)
) WITHOUT ROWID;
CREATE TABLE outbound_order (
    recipient_did TEXT PRIMARY KEY NOT NULL,
    next_seq      INTEGER NOT NULL
) WITHOUT ROWID;

-- Tags and links of notes, whole, one a row: never matched by substring.
CREATE TABLE note_tags (
    note_id INTEGER NOT NULL REFERENCES notes (id) ON DELETE CASCADE,
    tag     TEXT NOT NULL,
    PRIMARY KEY (note_id, tag)
) WITHOUT ROWID;
CREATE INDEX note_tags_tag ON note_tags (tag, note_id);
CREATE TABLE note_links (
    note_id INTEGER NOT NULL REFERENCES notes (id) ON DELETE CASCADE,
    target  TEXT NOT NULL,
    PRIMARY KEY (note_id, target)
) WITHOUT ROWID;
CREATE INDEX note_links_target ON note_links (target, note_id);

-- One row for each recipient of each note we send. A state is never more than a receipt proves.
CREATE TABLE outbox (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    note_id         INTEGER,
    container_did   TEXT,                                -- NULL while the recipient's key is unknown
    container_id    INTEGER REFERENCES containers (id),
    recipient_did   TEXT NOT NULL,
    seq             INTEGER,
    state           TEXT NOT NULL DEFAULT 'queued' CHECK (state IN
                    ('queued', 'sent', 'relayed', 'delivered', 'read', 'refused', 'failed', 'expired')),
    reason          TEXT,                                -- stable code
    created_at      TEXT NOT NULL,
    expires_at      TEXT,
    sent_at         TEXT,
    attempts        INTEGER NOT NULL DEFAULT 0,
    next_attempt_at TEXT,                                -- NULL: due now
    receipt_did     TEXT,                                -- the receipt that proves the state
    draft           BLOB,                                -- the unsealed note, encrypted to ourselves
    network         TEXT NOT NULL DEFAULT '',            -- scope of the container (protocol/spec/container.md 10)
    priority        INTEGER NOT NULL DEFAULT 0,
    route           TEXT CHECK (route IN ('lan', 'direct', 'relayed')),  -- by which its receipt came
    via             TEXT,                                -- the mailman that brought it
    why             TEXT,                                -- why it did not go a better way
    updated_at      TEXT NOT NULL,
    UNIQUE (container_id, recipient_did)
);
CREATE INDEX outbox_recipient ON outbox (recipient_did, state, id);
CREATE INDEX outbox_note ON outbox (note_id);
CREATE INDEX outbox_open ON outbox (expires_at) WHERE state IN ('queued', 'sent', 'relayed');

-- What each mailman has said about each outbox row: at most two hold one note. A mailman that asks for what it has
-- signed for has lost it.
CREATE TABLE relays (
    outbox_id   INTEGER NOT NULL REFERENCES outbox (id) ON DELETE CASCADE,
    mailman_did TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('relayed', 'brought', 'lost', 'refused')),
    reason      TEXT,
    retry_at    TEXT,                                    -- of a refusal that is only for now
    receipt_did TEXT,
    at          TEXT NOT NULL,                           -- of its last word
    losses      INTEGER NOT NULL DEFAULT 0,              -- how often it has lost this one
    PRIMARY KEY (outbox_id, mailman_did)
) WITHOUT ROWID;
CREATE INDEX relays_mailman ON relays (mailman_did, state, at);
CREATE INDEX relays_losses ON relays (mailman_did) WHERE losses > 0;

-- ---------------------------------------------------------------- mail of others, which we hold as a mailman

-- One row for each client of ours that a container is for; the bytes are in containers. A row stays when its mail is
-- gone, as long as its container's receipt may be asked for again.
CREATE TABLE mailbag (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    container_id  INTEGER NOT NULL REFERENCES containers (id),
    recipient_did TEXT NOT NULL,
    sender_did    TEXT NOT NULL,
    size          INTEGER NOT NULL,                      -- bytes
    priority      INTEGER NOT NULL,                      -- the sender's word, -1 to 2
    network       TEXT NOT NULL DEFAULT '',              -- scope of the container (protocol/spec/container.md 10)
    state         TEXT NOT NULL DEFAULT 'held' CHECK (state IN ('held', 'delivered', 'expired', 'evicted')),
    received_at   TEXT NOT NULL,
    received_day  INTEGER NOT NULL,                      -- days since 1970: what is old weighs more
    expires_at    TEXT NOT NULL,
    retry_at      TEXT,                                  -- the client cannot take it before
    said          TEXT,                                  -- the client's best word: refused, delivered, read
    receipt_did   TEXT,                                  -- in which it said so
    UNIQUE (container_id, recipient_did)
);
CREATE INDEX mailbag_recipient ON mailbag (recipient_did, id) WHERE state = 'held';
CREATE INDEX mailbag_sender ON mailbag (sender_did) WHERE state = 'held';
CREATE INDEX mailbag_expires ON mailbag (expires_at);

-- What is held now: in all (did empty), for each client, from each sender.
CREATE TABLE mailbag_shares (
    kind  TEXT NOT NULL CHECK (kind IN ('all', 'client', 'sender')),
    did   TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (kind, did)
) WITHOUT ROWID;

-- Receipts of clients, on their way back to senders who may be away.
CREATE TABLE mailbag_receipts (
    receipt_did TEXT NOT NULL,
    to_did      TEXT NOT NULL,
    raw         BLOB NOT NULL,
    expires_at  TEXT NOT NULL,
    PRIMARY KEY (to_did, receipt_did)
) WITHOUT ROWID;
CREATE INDEX mailbag_receipts_expires ON mailbag_receipts (expires_at);

-- Signed receipts, theirs and ours, and what each item says.
CREATE TABLE receipts (
    did        TEXT PRIMARY KEY NOT NULL,
    signer_did TEXT NOT NULL,
    direction  TEXT NOT NULL CHECK (direction IN ('in', 'out')),
    peer_did   TEXT,                                     -- the other side of it
    raw        BLOB NOT NULL,
    timestamp  TEXT NOT NULL,
    stored_at  TEXT NOT NULL
);
CREATE INDEX receipts_peer ON receipts (direction, peer_did, stored_at);
CREATE TABLE receipt_items (
    container_id  INTEGER NOT NULL REFERENCES containers (id),
    signer_did    TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('relayed', 'delivered', 'read', 'refused')),
    reason        TEXT,
    receipt_did   TEXT NOT NULL REFERENCES receipts (did),
    PRIMARY KEY (container_id, signer_did, state)
) WITHOUT ROWID;
CREATE INDEX receipt_items_receipt ON receipt_items (receipt_did);

-- ---------------------------------------------------------------- rights

-- What we grant, never what a peer offers. Subject: '*', 'tag:Friend' or a DID; the narrowest rules.
CREATE TABLE grants (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    subject       TEXT NOT NULL,
    kind          TEXT NOT NULL,
    direction     TEXT NOT NULL CHECK (direction IN ('in', 'out')),
    allow         INTEGER NOT NULL CHECK (allow IN (0, 1)),
    count_per_day INTEGER,                               -- NULL: no limit
    bytes_per_day INTEGER,
    created_at    TEXT NOT NULL,
    expires_at    TEXT,
    UNIQUE (subject, kind, direction)
);
CREATE TABLE grant_usage (
    day         TEXT NOT NULL,                           -- YYYY-MM-DD, UTC
    subject_did TEXT NOT NULL,
    kind        TEXT NOT NULL,
    direction   TEXT NOT NULL CHECK (direction IN ('in', 'out')),
    count       INTEGER NOT NULL DEFAULT 0,
    bytes       INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (day, subject_did, kind, direction)
) WITHOUT ROWID;

-- What was refused, to whom and why; the newest 10,000.
CREATE TABLE refusals (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    at     TEXT NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    code   TEXT NOT NULL,
    detail TEXT
);
CREATE TRIGGER refusals_capped AFTER INSERT ON refusals
BEGIN
    DELETE FROM refusals WHERE id <= NEW.id - 10000;
END;

-- ---------------------------------------------------------------- peers

-- The address book: every finder's hints. One row for each address of a peer, under the best source that named it.
CREATE TABLE peer_addresses (
    did            TEXT NOT NULL,
    address        TEXT NOT NULL,
    source         TEXT NOT NULL,                        -- hand, card, announce, lan, host, seed, peer, dht, inbound
    subnet         TEXT NOT NULL DEFAULT '',             -- /24 or /48 of a global address, for quotas
    added_at       TEXT NOT NULL,
    expires_at     TEXT,                                 -- NULL: never
    near_until     TEXT,                                 -- so long a finder of this host or LAN vouches for it
    last_success   TEXT,
    last_failure   TEXT,
    failure_reason TEXT,
    PRIMARY KEY (did, address)
) WITHOUT ROWID;
CREATE INDEX peer_addresses_address ON peer_addresses (address);
CREATE INDEX peer_addresses_subnet ON peer_addresses (subnet) WHERE subnet <> '';
CREATE INDEX peer_addresses_expires ON peer_addresses (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX peer_addresses_near ON peer_addresses (near_until) WHERE near_until IS NOT NULL;
CREATE INDEX agent_peers_untrusted ON agent_peers (registered_at) WHERE status = 'untrusted';

-- Words peers announce of themselves, folded; ``source`` is announce, or the finder that showed a signed record.
CREATE TABLE peer_words (
    did    TEXT NOT NULL,
    kind   TEXT NOT NULL CHECK (kind IN ('interest', 'expertise', 'topic', 'role')),
    word   TEXT NOT NULL,
    source TEXT NOT NULL,
    PRIMARY KEY (did, kind, word)
) WITHOUT ROWID;
CREATE INDEX peer_words_word ON peer_words (kind, word);

-- Who holds whose mail, by the word of the recipient; ``source`` is announce, card, dht.
CREATE TABLE peer_mailmen (
    did         TEXT NOT NULL,
    mailman_did TEXT NOT NULL,
    source      TEXT NOT NULL,
    PRIMARY KEY (did, mailman_did)
) WITHOUT ROWID;
CREATE INDEX peer_mailmen_mailman ON peer_mailmen (mailman_did);

-- The mailmen we use ourselves, in the order they were chosen.
CREATE TABLE own_mailmen (
    did      TEXT PRIMARY KEY NOT NULL,
    added_at TEXT NOT NULL
) WITHOUT ROWID;

-- Addresses of ours that peers dialled back, and what came of it: the newest word of each peer.
CREATE TABLE own_addresses (
    address TEXT NOT NULL,
    by_did  TEXT NOT NULL,
    state   TEXT NOT NULL CHECK (state IN ('proven', 'refuted')),
    reason  TEXT,
    at      TEXT NOT NULL,
    PRIMARY KEY (address, by_did)
) WITHOUT ROWID;

-- Proof of work for addresses of ours: what was mined once is not mined again.
CREATE TABLE own_work (
    text  TEXT PRIMARY KEY NOT NULL,                     -- what the work is over, without the nonce (wire/pow.py)
    bits  INTEGER NOT NULL,
    nonce INTEGER NOT NULL,
    at    TEXT NOT NULL
) WITHOUT ROWID;

-- Seed lists that were joined: where from, whose signature is believed, and how old the newest one is.
CREATE TABLE seed_lists (
    origin     TEXT PRIMARY KEY NOT NULL,
    signer_did TEXT,                                     -- NULL: an unsigned list of the first version
    timestamp  TEXT,
    expires_at TEXT,
    joined_at  TEXT NOT NULL
) WITHOUT ROWID;

-- Peers that were purged: no finder brings them back; the owner's hand does.
CREATE TABLE shunned (
    did TEXT PRIMARY KEY NOT NULL,
    at  TEXT NOT NULL
) WITHOUT ROWID;

-- Keys pinned on first sight.
CREATE TABLE peer_keys (
    did        TEXT PRIMARY KEY NOT NULL,
    public_key BLOB NOT NULL,
    first_seen TEXT NOT NULL,
    revoked_at TEXT
) WITHOUT ROWID;
CREATE INDEX peer_keys_revoked ON peer_keys (revoked_at) WHERE revoked_at IS NOT NULL;

-- Names the user gave: the only names that can be sent to. NFC, casefolded.
CREATE TABLE aliases (
    name       TEXT PRIMARY KEY NOT NULL,
    display    TEXT NOT NULL,                            -- as the user wrote it
    did        TEXT NOT NULL,
    created_at TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX aliases_did ON aliases (did);

CREATE TABLE blocked (
    did TEXT PRIMARY KEY NOT NULL,
    at  TEXT NOT NULL
) WITHOUT ROWID;

-- The newest signed announcement of each peer in each scope: one for everybody, and those that stay where the peer
-- gave them to us. ``brought``: it did not come from the peer itself.
CREATE TABLE peer_announcements (
    did           TEXT NOT NULL,
    network       TEXT NOT NULL DEFAULT '',
    container_did TEXT NOT NULL,
    raw           BLOB NOT NULL,
    timestamp     TEXT NOT NULL,
    brought       INTEGER NOT NULL DEFAULT 0 CHECK (brought IN (0, 1)),
    PRIMARY KEY (did, network)
);

-- ---------------------------------------------------------------- the log's chain (protocol/spec/log.md)

-- The message's hash is repeated here because the chain covers it; message_id finds the row without another
-- index over random hashes, which is what an append costs most.
CREATE TABLE log_chain (
    chain_id   TEXT NOT NULL,                            -- this installation of the agent
    seq        INTEGER NOT NULL CHECK (seq >= 1),        -- dense from 1
    hash       CHAR(64) NOT NULL,
    chain_hash CHAR(64) NOT NULL,
    message_id INTEGER NOT NULL UNIQUE REFERENCES log_messages (id),
    PRIMARY KEY (chain_id, seq)
) WITHOUT ROWID;
CREATE TRIGGER log_chain_no_update BEFORE UPDATE ON log_chain
BEGIN
    SELECT RAISE(ABORT, 'log_chain is append-only: no UPDATE');
END;
CREATE TRIGGER log_chain_no_delete BEFORE DELETE ON log_chain
BEGIN
    SELECT RAISE(ABORT, 'log_chain is append-only: no DELETE');
END;
CREATE TRIGGER log_chain_no_replace BEFORE INSERT ON log_chain
BEGIN
    SELECT RAISE(ABORT, 'log_chain is append-only: no such seq twice')
        FROM log_chain WHERE chain_id = NEW.chain_id AND seq = NEW.seq;
    SELECT RAISE(ABORT, 'log_chain is append-only: no such message twice')
        FROM log_chain WHERE message_id = NEW.message_id;
END;

-- The newest signed head of each chain.
CREATE TABLE log_heads (
    chain_id   TEXT PRIMARY KEY NOT NULL,
    seq        INTEGER NOT NULL,
    chain_hash CHAR(64) NOT NULL,
    signature  BLOB NOT NULL,
    created_at TEXT NOT NULL
) WITHOUT ROWID;

-- What hides a row's content behind its commitment; gone once the row is redacted. Hex of 16 bytes.
CREATE TABLE log_salts (
    message_id       INTEGER PRIMARY KEY REFERENCES log_messages (id),
    content_salt     TEXT NOT NULL,
    attachments_salt TEXT                                -- NULL: no attachments
);

-- What stays of a redacted row's content: the commitments, and the log entry that says so.
CREATE TABLE log_redactions (
    message_id             INTEGER PRIMARY KEY REFERENCES log_messages (id),
    content_commitment     CHAR(64) NOT NULL,
    attachments_commitment CHAR(64),
    entry_hash             CHAR(64) NOT NULL,
    redacted_at            TEXT NOT NULL
);

-- ---------------------------------------------------------------- once-only actions, settings

-- An action's effect and this row commit together: the same key again gives the same result.
CREATE TABLE applied (
    key          TEXT PRIMARY KEY NOT NULL,
    request_hash TEXT NOT NULL,
    result       TEXT NOT NULL,                          -- JSON
    created_at   TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX applied_created ON applied (created_at);

CREATE TABLE settings (
    key   TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- ---------------------------------------------------------------- the mind's journal

CREATE TABLE agent_log (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,     -- the tick
    started_at    TEXT NOT NULL,
    finished_at   TEXT,
    phase         TEXT NOT NULL CHECK (phase IN
                  ('open', 'answered', 'planned', 'committed', 'failed', 'aborted')),
    mode          TEXT,
    llm_id        TEXT,
    prompt_hash   TEXT,
    manifest      TEXT,                                  -- JSON: ids and hashes of what the model saw
    response_text TEXT,                                  -- the raw reply, stored before it is parsed
    tool_calls    TEXT,                                  -- JSON: native calls of the same reply
    usage         TEXT,                                  -- JSON
    reflex        TEXT,                                  -- JSON
    taint         TEXT NOT NULL DEFAULT '[]',            -- JSON [[author, trust]]: whose words the model was shown
    error         TEXT
);
CREATE INDEX agent_log_unfinished ON agent_log (phase) WHERE phase IN ('open', 'answered', 'planned');

CREATE TABLE tick_commands (
    tick       INTEGER NOT NULL REFERENCES agent_log (id),
    ordinal    INTEGER NOT NULL,
    cmd_id     TEXT NOT NULL,
    type       TEXT NOT NULL,
    args       TEXT NOT NULL,                            -- JSON
    args_hash  TEXT NOT NULL,
    status     TEXT NOT NULL DEFAULT 'pending' CHECK (status IN
               ('pending', 'started', 'ok', 'error', 'denied', 'skipped', 'queued', 'unknown')),
    result     TEXT,                                     -- JSON
    process_id INTEGER REFERENCES process_log (id) ON DELETE SET NULL,
    PRIMARY KEY (tick, ordinal)
);
CREATE INDEX tick_commands_process ON tick_commands (process_id);

-- The operating system's side of a row of process_log.
CREATE TABLE process_runs (
    process_id  INTEGER PRIMARY KEY REFERENCES process_log (id) ON DELETE CASCADE,
    argv        TEXT NOT NULL,                           -- JSON array
    pid         INTEGER,
    pid_start   TEXT,                                    -- boot and start time: the same process, or another with its pid
    started_at  TEXT NOT NULL,
    deadline_at TEXT,
    finished_at TEXT,
    exit_code   INTEGER,
    output_path TEXT
);

-- ---------------------------------------------------------------- rows of the mind: kind is diary, concept, thought, ...

-- Whose untrusted words a row goes back to: all that stood in the prompt that led to it (loop: taint).
CREATE TABLE row_taint (
    kind   TEXT NOT NULL,
    row_id INTEGER NOT NULL,
    author TEXT NOT NULL,                                -- a DID, file:PATH, process:ID, outside
    trust  TEXT NOT NULL,
    PRIMARY KEY (kind, row_id, author)
) WITHOUT ROWID;

-- Rows that a person looked at and found harmless: their taint counts no more.
CREATE TABLE cleared (
    kind   TEXT NOT NULL,
    row_id INTEGER NOT NULL,
    at     TEXT NOT NULL,
    PRIMARY KEY (kind, row_id)
) WITHOUT ROWID;

-- The message of the log that a row came in, or was written by: for context_hashes.
CREATE TABLE row_log (
    kind       TEXT NOT NULL,
    row_id     INTEGER NOT NULL,
    message_id INTEGER NOT NULL REFERENCES log_messages (id),
    PRIMARY KEY (kind, row_id)
) WITHOUT ROWID;

-- Tags, indexed; the seeds' text columns stay as they are read.
CREATE TABLE row_tags (
    kind   TEXT NOT NULL,
    tag    TEXT NOT NULL,
    row_id INTEGER NOT NULL,
    PRIMARY KEY (kind, tag, row_id)
) WITHOUT ROWID;
CREATE INDEX row_tags_row ON row_tags (kind, row_id);

CREATE TABLE row_marks (
    kind   TEXT NOT NULL,
    row_id INTEGER NOT NULL,
    mark   TEXT NOT NULL CHECK (mark IN ('pinned', 'archived')),
    at     TEXT NOT NULL,
    PRIMARY KEY (kind, mark, row_id)
) WITHOUT ROWID;

-- Records the model asked for: they stand in context 3 of the next committed tick, and are gone after it.
CREATE TABLE requested (
    kind   TEXT NOT NULL,
    row_id INTEGER NOT NULL,
    tick   INTEGER NOT NULL,                             -- of the last command that asked
    PRIMARY KEY (kind, row_id)
) WITHOUT ROWID;

-- What each row of the mind was before it was written: `undo --tick` takes it back.
CREATE TABLE mind_writes (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    tick    INTEGER,                                     -- NULL: not the model's
    ordinal INTEGER,
    actor   TEXT NOT NULL,
    kind    TEXT NOT NULL,
    row_id  INTEGER NOT NULL,
    before  TEXT,                                        -- JSON of the row; NULL: there was none
    at      TEXT NOT NULL,
    undone  INTEGER NOT NULL DEFAULT 0 CHECK (undone IN (0, 1))
);
CREATE INDEX mind_writes_tick ON mind_writes (tick) WHERE tick IS NOT NULL;
CREATE INDEX mind_writes_row ON mind_writes (kind, row_id, id);

-- The loop's settings that the model may change; one row.
CREATE TABLE loop_state (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    responses INTEGER NOT NULL,                          -- K
    mode      TEXT NOT NULL CHECK (mode IN ('manual', 'auto')),
    filter    TEXT NOT NULL,                             -- JSON: which notes auto mode shows
    pause_us  INTEGER NOT NULL,
    idle      TEXT                                       -- JSON: what ends the idling; NULL: it does not idle
);

-- Messages of the log that belong to a tick: its prompt, its reply, its commands.
CREATE TABLE tick_messages (
    tick       INTEGER NOT NULL,
    message_id INTEGER NOT NULL REFERENCES log_messages (id),
    PRIMARY KEY (tick, message_id)
) WITHOUT ROWID;

-- Commands of a tainted tick that wait for a person.
CREATE TABLE approvals (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    tick       INTEGER NOT NULL,
    ordinal    INTEGER NOT NULL,
    llm_id     TEXT NOT NULL,
    action     TEXT NOT NULL,
    args       TEXT NOT NULL,                            -- JSON
    args_hash  TEXT NOT NULL,
    taint      TEXT NOT NULL,                            -- JSON [[author, trust]]
    reason     TEXT NOT NULL,
    state      TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'approved', 'refused', 'expired')),
    created_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    decided_at TEXT,
    decided_by TEXT,
    UNIQUE (tick, ordinal)
);
CREATE INDEX approvals_waiting ON approvals (expires_at) WHERE state = 'waiting';

-- ---------------------------------------------------------------- the models

-- How each model of llm_registry is reached. Keys stand elsewhere: an environment variable's name, or a file's.
CREATE TABLE llm_endpoints (
    id           TEXT PRIMARY KEY NOT NULL REFERENCES llm_registry (id) ON DELETE CASCADE,
    url          TEXT NOT NULL,
    model        TEXT NOT NULL DEFAULT '',               -- empty: the first the endpoint lists
    key_env      TEXT,
    key_file     TEXT,
    window       INTEGER NOT NULL,                       -- tokens of prompt and reply together
    reply_tokens INTEGER NOT NULL,
    rank         INTEGER NOT NULL DEFAULT 0,             -- smaller is tried first
    enabled      INTEGER NOT NULL DEFAULT 1 CHECK (enabled IN (0, 1)),
    tools        TEXT NOT NULL DEFAULT 'unknown' CHECK (tools IN ('unknown', 'yes', 'no')),
    json_mode    TEXT NOT NULL DEFAULT 'unknown' CHECK (json_mode IN ('unknown', 'yes', 'no')),
    state        TEXT NOT NULL DEFAULT 'unknown',        -- ok, or why the last call failed
    state_at     TEXT
) WITHOUT ROWID;

CREATE TABLE llm_usage (
    hour          TEXT NOT NULL,                         -- YYYY-MM-DDTHH, UTC
    llm_id        TEXT NOT NULL,
    calls         INTEGER NOT NULL DEFAULT 0,
    prompt_tokens INTEGER NOT NULL DEFAULT 0,
    reply_tokens  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (hour, llm_id)
) WITHOUT ROWID;
