ALTER TABLE outbox_event ADD COLUMN traceparent text, ADD COLUMN tracestate text;
CREATE FUNCTION outbox_header_columns() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.traceparent := NEW.headers ->> 'traceparent';
    NEW.tracestate := NEW.headers ->> 'tracestate';
    RETURN NEW;
END $$;
CREATE TRIGGER outbox_header_columns BEFORE INSERT ON outbox_event
    FOR EACH ROW WHEN (NEW.claimed_by = 'log') EXECUTE FUNCTION outbox_header_columns();
