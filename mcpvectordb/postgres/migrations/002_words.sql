-- Postings and statistics follow the items in the same transaction, whoever writes or deletes these. Before the counts
-- of terms, the row of totals is locked: transactions of one origin wait for each other there and cannot deadlock, and
-- origins share no row. Postings are made before that, by several connections at the same time.

CREATE FUNCTION add_totals() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO totals (origin, shelf) VALUES (NEW.key, 'document'), (NEW.key, 'context');
    RETURN NULL;
END $$;
CREATE TRIGGER add_totals AFTER INSERT ON origins FOR EACH ROW EXECUTE FUNCTION add_totals();

-- Arguments: shelf, table of postings, table of terms, and what of a new row is split into terms. A part of the words
-- that is repeated there counts twice.
CREATE FUNCTION add_postings() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET work_mem = '64MB' AS $$
DECLARE
    terms text[];
    origins integer[];
    counts bigint[];
BEGIN
    EXECUTE format($sql$
        WITH made AS (
            INSERT INTO %1$I (term, origin, item, weight, tokens)
            SELECT term, origin, id, count(*), tokens FROM (
                SELECT id, origin, tokens, unnest(string_to_array(%2$s, ' ')) AS term FROM added
            ) AS each WHERE term NOT IN ('', E'\n')
            GROUP BY id, origin, tokens, term ORDER BY term, origin, id
            RETURNING term, origin
        ), counted AS (
            SELECT term, origin, count(*) AS items FROM made GROUP BY term, origin
        )
        SELECT array_agg(term), array_agg(origin), array_agg(items) FROM counted
    $sql$, TG_ARGV[1], TG_ARGV[3]) INTO terms, origins, counts;
    PERFORM 1 FROM totals t WHERE t.shelf = TG_ARGV[0] AND t.origin IN (SELECT origin FROM added)
        ORDER BY t.origin FOR UPDATE;
    EXECUTE format($sql$
        INSERT INTO %1$I AS known (term, origin, items)
        SELECT * FROM unnest($1, $2, $3)
        ON CONFLICT (term, origin) DO UPDATE SET items = known.items + excluded.items
    $sql$, TG_ARGV[2]) USING terms, origins, counts;
    RETURN NULL;
END $$;

-- Arguments: shelf, table of postings, table of terms, and the column of words.
CREATE FUNCTION remove_postings() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET work_mem = '64MB'
-- Whatever the planner thinks: each posting is looked up, no table is read as a whole.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM removed) THEN
        RETURN NULL; -- a document without passages
    END IF;
    PERFORM 1 FROM totals t WHERE t.shelf = TG_ARGV[0] AND t.origin IN (SELECT origin FROM removed)
        ORDER BY t.origin FOR UPDATE;
    EXECUTE format($sql$
        WITH named AS MATERIALIZED (
            SELECT DISTINCT unnest(string_to_array(%3$I, ' ')) AS term, origin, id FROM removed
        ), gone AS (
            DELETE FROM %1$I w USING named n
            WHERE w.term = n.term AND w.origin = n.origin AND w.item = n.id
            RETURNING w.term, w.origin
        ), counted AS (
            SELECT term, origin, count(*) AS items FROM gone GROUP BY term, origin
        ), rarer AS (
            UPDATE %2$I t SET items = t.items - c.items FROM counted c
            WHERE t.term = c.term AND t.origin = c.origin AND t.items > c.items
        )
        DELETE FROM %2$I t USING counted c
        WHERE t.term = c.term AND t.origin = c.origin AND t.items <= c.items
    $sql$, TG_ARGV[1], TG_ARGV[2], TG_ARGV[3]);
    RETURN NULL;
END $$;

CREATE FUNCTION count_added() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE totals t SET items = t.items + n.items, tokens = t.tokens + n.tokens
    FROM (SELECT origin, count(*) AS items, sum(tokens) AS tokens FROM added GROUP BY origin) AS n
    WHERE t.origin = n.origin AND t.shelf = TG_ARGV[0];
    RETURN NULL;
END $$;

CREATE FUNCTION count_removed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE totals t SET items = t.items - n.items, tokens = t.tokens - n.tokens
    FROM (SELECT origin, count(*) AS items, sum(tokens) AS tokens FROM removed GROUP BY origin) AS n
    WHERE t.origin = n.origin AND t.shelf = TG_ARGV[0];
    RETURN NULL;
END $$;

-- Argument: the table of embeddings.
CREATE FUNCTION remove_embeddings() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    EXECUTE format('DELETE FROM %I e USING removed r WHERE e.chunk = r.id', TG_ARGV[0]);
    RETURN NULL;
END $$;

-- Triggers of one event fire in the order of their names: postings come before the totals, which lock.
CREATE TRIGGER a_postings AFTER INSERT ON document_chunks REFERENCING NEW TABLE AS added FOR EACH STATEMENT
EXECUTE FUNCTION add_postings('document', 'document_words', 'document_terms', 'words || split_part(words, E''\n'', 1)');
CREATE TRIGGER b_totals AFTER INSERT ON document_chunks REFERENCING NEW TABLE AS added FOR EACH STATEMENT
EXECUTE FUNCTION count_added('document');
CREATE TRIGGER remove_postings AFTER DELETE ON document_chunks REFERENCING OLD TABLE AS removed FOR EACH STATEMENT
EXECUTE FUNCTION remove_postings('document', 'document_words', 'document_terms', 'words');
CREATE TRIGGER remove_totals AFTER DELETE ON document_chunks REFERENCING OLD TABLE AS removed FOR EACH STATEMENT
EXECUTE FUNCTION count_removed('document');
CREATE TRIGGER remove_embeddings AFTER DELETE ON document_chunks REFERENCING OLD TABLE AS removed FOR EACH STATEMENT
EXECUTE FUNCTION remove_embeddings('document_embeddings');

CREATE TRIGGER a_postings AFTER INSERT ON contexts REFERENCING NEW TABLE AS added FOR EACH STATEMENT
EXECUTE FUNCTION add_postings('context', 'context_words', 'context_terms', 'words');
CREATE TRIGGER a_spellings AFTER INSERT ON contexts REFERENCING NEW TABLE AS added FOR EACH STATEMENT
EXECUTE FUNCTION add_postings('context', 'context_spellings', 'context_spelling_terms', 'spellings');
CREATE TRIGGER b_totals AFTER INSERT ON contexts REFERENCING NEW TABLE AS added FOR EACH STATEMENT
EXECUTE FUNCTION count_added('context');
CREATE TRIGGER remove_postings AFTER DELETE ON contexts REFERENCING OLD TABLE AS removed FOR EACH STATEMENT
EXECUTE FUNCTION remove_postings('context', 'context_words', 'context_terms', 'words');
CREATE TRIGGER remove_spellings AFTER DELETE ON contexts REFERENCING OLD TABLE AS removed FOR EACH STATEMENT
EXECUTE FUNCTION remove_postings('context', 'context_spellings', 'context_spelling_terms', 'spellings');
CREATE TRIGGER remove_totals AFTER DELETE ON contexts REFERENCING OLD TABLE AS removed FOR EACH STATEMENT
EXECUTE FUNCTION count_removed('context');
CREATE TRIGGER remove_embeddings AFTER DELETE ON context_chunks REFERENCING OLD TABLE AS removed FOR EACH STATEMENT
EXECUTE FUNCTION remove_embeddings('context_embeddings');
