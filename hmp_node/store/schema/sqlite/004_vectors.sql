-- 004: vectors of what is indexed, each with its model. The log has none: its words stand elsewhere, or weigh nothing.

-- Embedding models that vectors are of. Another version, or another address, is another model.
CREATE TABLE embedding_models (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL UNIQUE,                     -- PACKAGE@VERSION, or ADDRESS#MODEL of an endpoint
    key_env    TEXT NOT NULL DEFAULT '',                 -- what holds the endpoint's key: a variable's name,
    key_file   TEXT NOT NULL DEFAULT '',                 -- or a file's
    dimension  INTEGER NOT NULL,
    qualities  TEXT NOT NULL DEFAULT '{}',               -- language -> 0..1 of the self-test; none: not tested
    state      TEXT NOT NULL CHECK (state IN ('filling', 'active', 'retired')),
    marked     INTEGER NOT NULL DEFAULT 0,               -- filling: documents up to this id wait in vectors_pending
    created_at TEXT NOT NULL
);

-- One vector of one document. Ids only grow: whoever holds a copy asks for those after its last.
CREATE TABLE vectors (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    model_id  INTEGER NOT NULL REFERENCES embedding_models (id),
    doc_id    INTEGER NOT NULL REFERENCES search_docs (id) ON DELETE CASCADE,
    text_hash TEXT NOT NULL,                             -- of the text it is of: equal texts are embedded once
    vector    BLOB NOT NULL                              -- float32 scale, little-endian, and an int8 a dimension
);
CREATE UNIQUE INDEX vectors_doc ON vectors (doc_id, model_id);
CREATE INDEX vectors_text ON vectors (text_hash, model_id);

-- Vectors that are gone, for whoever holds a copy. Emptied when nobody does.
CREATE TABLE vectors_gone (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    vector_id INTEGER NOT NULL,
    model_id  INTEGER NOT NULL
);
CREATE TRIGGER vectors_deleted AFTER DELETE ON vectors
WHEN NOT EXISTS (SELECT 1 FROM embedding_models m WHERE m.id = OLD.model_id AND m.state = 'retired')
BEGIN
    INSERT INTO vectors_gone (vector_id, model_id) VALUES (OLD.id, OLD.model_id);
END;

-- Documents that want a vector of the newest model; those that failed come after the others.
CREATE TABLE vectors_pending (
    doc_id INTEGER PRIMARY KEY REFERENCES search_docs (id) ON DELETE CASCADE,
    tries  INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX vectors_pending_tries ON vectors_pending (tries, doc_id);
CREATE TRIGGER search_docs_vector AFTER INSERT ON search_docs WHEN NEW.kind <> 'log'
BEGIN
    INSERT OR IGNORE INTO vectors_pending (doc_id) VALUES (NEW.id);
END;
-- A vector of former words would find what is no longer there.
CREATE TRIGGER search_docs_vector_anew AFTER UPDATE OF text_hash ON search_docs
WHEN NEW.text_hash <> OLD.text_hash AND NEW.kind <> 'log'
BEGIN
    DELETE FROM vectors WHERE doc_id = NEW.id;
    INSERT INTO vectors_pending (doc_id) VALUES (NEW.id) ON CONFLICT (doc_id) DO UPDATE SET tries = 0;
END;
