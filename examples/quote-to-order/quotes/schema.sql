-- The tables of the quote service. The tables of the outbox, the inbox and the idempotency keys
-- come from the library. In production they come from sqloutbox.Migrations, sqlinbox.Migrations and
-- sqlonce.Migrations.
CREATE TABLE IF NOT EXISTS quote (
    id          text PRIMARY KEY,
    tenant_id   text NOT NULL,
    customer    text NOT NULL,
    status      text NOT NULL DEFAULT 'draft',
    accepted_at timestamptz,
    order_id    text,
    CONSTRAINT ck_quote_status   CHECK (status IN ('draft', 'accepted', 'ordered')),
    CONSTRAINT ck_quote_accepted CHECK ((status = 'draft') = (accepted_at IS NULL)),
    CONSTRAINT ck_quote_ordered  CHECK ((status = 'ordered') = (order_id IS NOT NULL))
);

CREATE TABLE IF NOT EXISTS quote_line (
    quote_id text    NOT NULL REFERENCES quote,
    line     integer NOT NULL,
    sku      text    NOT NULL,
    quantity integer NOT NULL CONSTRAINT ck_line_quantity CHECK (quantity > 0),
    cents    bigint  NOT NULL CONSTRAINT ck_line_cents CHECK (cents >= 0),
    PRIMARY KEY (quote_id, line)
);
