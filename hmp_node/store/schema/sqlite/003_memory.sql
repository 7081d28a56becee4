-- 003: what is kept beside projects, memories and sessions, and the index of the search.

-- ---------------------------------------------------------------- memories

-- Who wrote the words a row has now: user, llm:ID, mcp:CLIENT, a DID. For kinds without such a column of their own.
CREATE TABLE row_authors (
    kind   TEXT NOT NULL,                                -- memory, project, session
    row_id INTEGER NOT NULL,
    author TEXT NOT NULL,
    PRIMARY KEY (kind, row_id)
) WITHOUT ROWID;

-- The times of a memory: valid_from until valid_until it holds, status says whether it is shown.
CREATE TABLE memory_state (
    memory_id     INTEGER PRIMARY KEY REFERENCES memories (id) ON DELETE CASCADE,
    version       INTEGER NOT NULL DEFAULT 1,            -- of the words it has now; memory_versions has the others
    status        TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'archived', 'superseded')),
    status_at     TEXT NOT NULL,
    valid_from    TEXT NOT NULL,
    valid_until   TEXT,                                  -- NULL: it still holds
    superseded_by INTEGER REFERENCES memories (id) ON DELETE SET NULL,
    title_key     TEXT,                                  -- the title as wiki links look for it; NULL: no title
    content_hash  TEXT NOT NULL                          -- of project, type, title, content: the same thing twice
);
CREATE INDEX memory_state_content ON memory_state (content_hash) WHERE status = 'active';
CREATE INDEX memory_state_title ON memory_state (title_key) WHERE title_key IS NOT NULL;
CREATE INDEX memory_state_superseded_by ON memory_state (superseded_by) WHERE superseded_by IS NOT NULL;

-- What a memory said before: nothing is overwritten unseen, whoever writes.
CREATE TABLE memory_versions (
    memory_id   INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    version     INTEGER NOT NULL,
    project_id  INTEGER,
    type        TEXT NOT NULL,
    title       TEXT,
    content     TEXT NOT NULL,
    metadata    TEXT NOT NULL,
    author      TEXT,
    written_at  TEXT NOT NULL,
    replaced_at TEXT NOT NULL,
    message_id  INTEGER REFERENCES log_messages (id),    -- of the log, that it was written in
    PRIMARY KEY (memory_id, version)
) WITHOUT ROWID;
CREATE TRIGGER memories_keep_version BEFORE UPDATE OF project_id, type, title, content, metadata ON memories
WHEN OLD.project_id IS NOT NEW.project_id OR OLD.type <> NEW.type OR OLD.title IS NOT NEW.title
    OR OLD.content <> NEW.content OR OLD.metadata <> NEW.metadata
BEGIN
    INSERT INTO memory_versions
        (memory_id, version, project_id, type, title, content, metadata, author, written_at, replaced_at, message_id)
    SELECT OLD.id, s.version, OLD.project_id, OLD.type, OLD.title, OLD.content, OLD.metadata,
        (SELECT a.author FROM row_authors a WHERE a.kind = 'memory' AND a.row_id = OLD.id),
        OLD.updated_at, NEW.updated_at,
        (SELECT l.message_id FROM row_log l WHERE l.kind = 'memory' AND l.row_id = OLD.id)
    FROM memory_state s WHERE s.memory_id = OLD.id;
    UPDATE memory_state SET version = version + 1 WHERE memory_id = OLD.id;
END;

-- Titles that a memory bore before: a link written to one still finds it.
CREATE TABLE memory_titles (
    title_key TEXT NOT NULL,
    memory_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    PRIMARY KEY (title_key, memory_id)
) WITHOUT ROWID;
CREATE INDEX memory_titles_memory ON memory_titles (memory_id);

-- [[Titles]] that stand in a memory's content; the bound ones are rows of memory_links too, of the type wiki.
CREATE TABLE wiki_links (
    source_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    title_key TEXT NOT NULL,
    target_id INTEGER REFERENCES memories (id) ON DELETE SET NULL,  -- NULL: nothing has this title yet
    PRIMARY KEY (source_id, title_key)
) WITHOUT ROWID;
CREATE INDEX wiki_links_open ON wiki_links (title_key) WHERE target_id IS NULL;
CREATE INDEX wiki_links_target ON wiki_links (target_id) WHERE target_id IS NOT NULL;

-- Where a memory stands in a conversation: its metadata says so ({"session": text, "order": number}). Its neighbours
-- help to find it.
CREATE TABLE memory_turns (
    memory_id  INTEGER PRIMARY KEY REFERENCES memories (id) ON DELETE CASCADE,
    project_id INTEGER,
    session    TEXT NOT NULL,
    turn       INTEGER NOT NULL
);
CREATE INDEX memory_turns_session ON memory_turns (session, turn);

-- Where a memory was brought in from: a file of a vault, a line, a message; the same again adds nothing.
CREATE TABLE memory_sources (
    source    TEXT PRIMARY KEY,
    memory_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    digest    TEXT NOT NULL                              -- of what was read there last; empty: not told
) WITHOUT ROWID;
CREATE INDEX memory_sources_memory ON memory_sources (memory_id);

-- ---------------------------------------------------------------- the index of the search

-- Rows whose words changed since they were indexed, oldest first; one row may stand here more than once. Triggers
-- fill it, so that no writer can forget to.
CREATE TABLE search_pending (
    id     INTEGER PRIMARY KEY,
    kind   TEXT NOT NULL,                                -- memory, note, diary, concept, thought, log
    row_id INTEGER NOT NULL
);

-- What is indexed: what searching narrows by. Its words lie in the full-text table under the same id.
CREATE TABLE search_docs (
    id         INTEGER PRIMARY KEY,
    kind       TEXT NOT NULL,
    row_id     INTEGER NOT NULL,
    state      TEXT NOT NULL,                            -- active; or archived, superseded, hidden, quarantined
    project_id INTEGER,
    type       TEXT NOT NULL,                            -- of a memory; of a note its source, of a message its role
    author     TEXT NOT NULL,
    at         TEXT NOT NULL,
    language   TEXT NOT NULL,                            -- en, ru, uk, es; empty: not told
    text_hash  TEXT NOT NULL,                            -- SHA-256 of what an embedder is given, 32 hex digits of it
    UNIQUE (kind, row_id)
);
CREATE INDEX search_docs_project ON search_docs (project_id) WHERE project_id IS NOT NULL;
CREATE INDEX search_docs_at ON search_docs (kind, at);

CREATE TRIGGER memories_pending_insert AFTER INSERT ON memories
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('memory', NEW.id);
END;
CREATE TRIGGER memories_pending_update AFTER UPDATE OF project_id, type, title, content, metadata ON memories
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('memory', NEW.id);
END;
CREATE TRIGGER memories_pending_delete AFTER DELETE ON memories
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('memory', OLD.id);
END;
CREATE TRIGGER memory_state_pending AFTER UPDATE OF status ON memory_state
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('memory', NEW.memory_id);
END;
-- A turn is indexed with the words before and after it, so its neighbours are indexed anew.
CREATE TRIGGER memory_turns_insert AFTER INSERT ON memories
WHEN json_type(NEW.metadata, '$.session') = 'text' AND json_type(NEW.metadata, '$.order') = 'integer'
BEGIN
    INSERT INTO memory_turns (memory_id, project_id, session, turn)
    VALUES (NEW.id, NEW.project_id, json_extract(NEW.metadata, '$.session'), json_extract(NEW.metadata, '$.order'));
END;
CREATE TRIGGER memory_turns_update AFTER UPDATE OF project_id, content, metadata ON memories
BEGIN
    DELETE FROM memory_turns WHERE memory_id = NEW.id;
    INSERT INTO memory_turns (memory_id, project_id, session, turn)
    SELECT NEW.id, NEW.project_id, json_extract(NEW.metadata, '$.session'), json_extract(NEW.metadata, '$.order')
    WHERE json_type(NEW.metadata, '$.session') = 'text' AND json_type(NEW.metadata, '$.order') = 'integer';
END;
CREATE TRIGGER memory_turns_neighbours AFTER INSERT ON memory_turns
BEGIN
    INSERT INTO search_pending (kind, row_id)
    SELECT 'memory', t.memory_id FROM memory_turns t WHERE t.session = NEW.session
        AND t.turn IN (NEW.turn - 1, NEW.turn + 1) AND t.project_id IS NEW.project_id;
END;
CREATE TRIGGER memory_turns_parted AFTER DELETE ON memory_turns
BEGIN
    INSERT INTO search_pending (kind, row_id)
    SELECT 'memory', t.memory_id FROM memory_turns t WHERE t.session = OLD.session
        AND t.turn IN (OLD.turn - 1, OLD.turn + 1) AND t.project_id IS OLD.project_id;
END;
CREATE TRIGGER notes_pending_insert AFTER INSERT ON notes
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('note', NEW.id);
END;
CREATE TRIGGER notes_pending_update AFTER UPDATE OF text, hidden ON notes
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('note', NEW.id);
END;
CREATE TRIGGER notes_pending_delete AFTER DELETE ON notes
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('note', OLD.id);
END;
CREATE TRIGGER mail_pending AFTER UPDATE OF position, quarantined, deleted ON mail
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('note', NEW.note_id);
END;
CREATE TRIGGER diary_pending_insert AFTER INSERT ON diary_entries
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('diary', NEW.id);
END;
CREATE TRIGGER diary_pending_update AFTER UPDATE OF text ON diary_entries
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('diary', NEW.id);
END;
CREATE TRIGGER diary_pending_delete AFTER DELETE ON diary_entries
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('diary', OLD.id);
END;
CREATE TRIGGER diary_pending_mark AFTER INSERT ON row_marks WHEN NEW.kind = 'diary' AND NEW.mark = 'archived'
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('diary', NEW.row_id);
END;
CREATE TRIGGER diary_pending_unmark AFTER DELETE ON row_marks WHEN OLD.kind = 'diary' AND OLD.mark = 'archived'
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('diary', OLD.row_id);
END;
CREATE TRIGGER concepts_pending_insert AFTER INSERT ON concepts
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('concept', NEW.id);
END;
CREATE TRIGGER concepts_pending_update AFTER UPDATE OF name, description ON concepts
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('concept', NEW.id);
END;
CREATE TRIGGER concepts_pending_delete AFTER DELETE ON concepts
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('concept', OLD.id);
END;
CREATE TRIGGER thoughts_pending_insert AFTER INSERT ON llm_memory
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('thought', NEW.id);
END;
CREATE TRIGGER thoughts_pending_update AFTER UPDATE OF title, content ON llm_memory
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('thought', NEW.id);
END;
CREATE TRIGGER thoughts_pending_delete AFTER DELETE ON llm_memory
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('thought', OLD.id);
END;
-- Prompts repeat what stands elsewhere, and receipts hold no words.
CREATE TRIGGER log_pending_insert AFTER INSERT ON log_messages WHEN NEW.role NOT IN ('prompt', 'receipt')
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('log', NEW.id);
END;
CREATE TRIGGER log_pending_redact AFTER INSERT ON log_redactions
BEGIN
    INSERT INTO search_pending (kind, row_id) VALUES ('log', NEW.message_id);
END;

-- A store from before has rows already.
INSERT INTO search_pending (kind, row_id) SELECT 'note', id FROM notes;
INSERT INTO search_pending (kind, row_id) SELECT 'diary', id FROM diary_entries;
INSERT INTO search_pending (kind, row_id) SELECT 'concept', id FROM concepts;
INSERT INTO search_pending (kind, row_id) SELECT 'thought', id FROM llm_memory;
INSERT INTO search_pending (kind, row_id) SELECT 'log', id FROM log_messages WHERE role NOT IN ('prompt', 'receipt');

-- The words of the documents, analysed (docs/reference/search.md); rowid is search_docs.id.
CREATE VIRTUAL TABLE search_text USING fts5 (words, lemmas, stems, beginnings, title, before, after, date, tokenize = "unicode61 remove_diacritics 0");
CREATE VIRTUAL TABLE search_log_text USING fts5 (words, lemmas, stems, beginnings, title, before, after, date, tokenize = "unicode61 remove_diacritics 0");

-- How many documents hold each word: common words are asked last.
CREATE VIRTUAL TABLE search_vocab USING fts5vocab (search_text, row);
CREATE VIRTUAL TABLE search_log_vocab USING fts5vocab (search_log_text, row);
