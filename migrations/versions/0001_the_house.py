"""The tables of the main job: users, decisions, the three places of a notification, and what surrounds them."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

STATEMENTS = (
    # ------------------------------------------------------------------------------------------ installation, clock
    """
    CREATE TABLE installation (
        only_row     boolean     NOT NULL DEFAULT true PRIMARY KEY CHECK (only_row),
        namespace    uuid        NOT NULL DEFAULT gen_random_uuid(),
        clock_offset interval    NOT NULL DEFAULT interval '0' CHECK (clock_offset >= interval '0'),
        created_at   timestamptz NOT NULL DEFAULT now()
    )
    """,
    "INSERT INTO installation DEFAULT VALUES",
    "CREATE SCHEMA notifier",
    """
    CREATE FUNCTION notifier.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS
    $$ SELECT statement_timestamp() + (SELECT clock_offset FROM public.installation) $$
    """,
    # ------------------------------------------------------------------------------------------ users and events
    """
    CREATE TABLE users (
        user_id       text        COLLATE "C" NOT NULL PRIMARY KEY,
        email         text,
        email_at      timestamptz,
        name          text,
        name_at       timestamptz,
        timezone      text,
        timezone_at   timestamptz,
        locale        text,
        locale_at     timestamptz,
        attributes    jsonb,
        attributes_at timestamptz,
        created_at    timestamptz NOT NULL DEFAULT now(),
        erased_at     timestamptz,
        CHECK (erased_at IS NULL OR num_nonnulls(email, name, timezone, locale, attributes) = 0),
        CHECK ((email IS NULL) = (email_at IS NULL)),
        CHECK ((name IS NULL) = (name_at IS NULL)),
        CHECK ((timezone IS NULL) = (timezone_at IS NULL)),
        CHECK ((locale IS NULL) = (locale_at IS NULL)),
        CHECK ((attributes IS NULL) = (attributes_at IS NULL))
    ) WITH (fillfactor = 85)
    """,
    """
    CREATE TABLE last_seen (
        user_id    text        COLLATE "C" NOT NULL,
        event_type text        COLLATE "C" NOT NULL,
        seen_at    timestamptz NOT NULL,
        event_ref  text        NOT NULL,
        PRIMARY KEY (user_id, event_type)
    ) WITH (fillfactor = 85)
    """,
    """
    CREATE TABLE events (
        source      text        COLLATE "C" NOT NULL,
        id          text        COLLATE "C" NOT NULL,
        type        text        NOT NULL,
        user_id     text        COLLATE "C" NOT NULL,
        occurred_at timestamptz,
        fingerprint bytea       NOT NULL CHECK (octet_length(fingerprint) = 32),
        answer      json,
        taken_at    timestamptz,
        received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (source, id),
        CHECK (answer IS NULL OR (occurred_at IS NOT NULL AND taken_at IS NOT NULL))
    ) WITH (fillfactor = 70)
    """,
    "CREATE INDEX events_of_user ON events (user_id, received_at)",
    # ------------------------------------------------------------------------------------------ decisions
    """
    CREATE TABLE outbox (
        id          uuid        NOT NULL PRIMARY KEY,
        user_id     text        COLLATE "C" NOT NULL,
        kind        text        COLLATE "C" NOT NULL CHECK (kind <> ''),
        kind_name   text        COLLATE "C" NOT NULL GENERATED ALWAYS AS (split_part(kind, '@', 1)) STORED,
        decided_at  timestamptz NOT NULL,
        decided_by  text        NOT NULL,
        due_at      timestamptz NOT NULL CHECK (due_at >= decided_at),
        cancel_on   text[]      NOT NULL DEFAULT '{}',
        cancel_from timestamptz NOT NULL CHECK (cancel_from >= decided_at),
        data        jsonb       NOT NULL,
        taken_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
        CONSTRAINT outbox_once UNIQUE (user_id, kind)
    )
    """,
    # ------------------------------------------------------------------------------------------ the three places
    """
    CREATE TABLE scheduled_sends (
        id            uuid        NOT NULL PRIMARY KEY,
        user_id       text        COLLATE "C" NOT NULL,
        kind          text        COLLATE "C" NOT NULL,
        due_at        timestamptz NOT NULL,
        generation    integer     NOT NULL DEFAULT 0 CHECK (generation >= 0),
        resend_number integer     NOT NULL DEFAULT 0 CHECK (resend_number >= 0)
    ) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000)
    """,
    "CREATE INDEX scheduled_sends_due ON scheduled_sends (due_at, id)",
    """
    CREATE TABLE deliveries (
        id               uuid        NOT NULL PRIMARY KEY,
        user_id          text        COLLATE "C" NOT NULL,
        kind             text        COLLATE "C" NOT NULL,
        kind_name        text        COLLATE "C" NOT NULL GENERATED ALWAYS AS (split_part(kind, '@', 1)) STORED,
        next_attempt_at  timestamptz NOT NULL,
        entered_at       timestamptz NOT NULL DEFAULT now(),
        generation       integer     NOT NULL DEFAULT 0 CHECK (generation >= 0),
        attempts         integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
        waits            integer     NOT NULL DEFAULT 0 CHECK (waits >= 0),
        claimed_by       text        COLLATE "C",
        claimed_at       timestamptz,
        claim_expires_at timestamptz,
        calling          boolean     NOT NULL DEFAULT false,
        doubt_since      timestamptz,
        provider         text,
        recipient        text,
        locale           text,
        template_hash    text        COLLATE "C",
        batch_id         uuid,
        resend_number    integer     NOT NULL DEFAULT 0 CHECK (resend_number >= 0),
        reason           text,
        erased           boolean     NOT NULL DEFAULT false,
        CHECK (NOT erased OR claimed_by IS NOT NULL OR recipient IS NULL),
        CHECK ((claimed_by IS NULL) = (claim_expires_at IS NULL)),
        CHECK ((claimed_by IS NULL) = (claimed_at IS NULL)),
        CHECK (claimed_by IS NULL OR generation > 0),
        CHECK (NOT calling OR claimed_by IS NOT NULL),
        CHECK (doubt_since IS NULL OR (generation > 0 AND provider IS NOT NULL AND template_hash IS NOT NULL))
    ) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000)
    """,
    "CREATE INDEX deliveries_ready ON deliveries (kind_name, next_attempt_at, id) WHERE claimed_by IS NULL",
    "CREATE INDEX deliveries_claimed ON deliveries (claim_expires_at) WHERE claimed_by IS NOT NULL",
    """
    CREATE TABLE settlements (
        id                  uuid        NOT NULL PRIMARY KEY,
        user_id             text        COLLATE "C" NOT NULL,
        kind                text        COLLATE "C" NOT NULL,
        state               text        NOT NULL
                            CHECK (state IN ('sent', 'canceled', 'skipped', 'failed', 'uncertain')),
        reason              text,
        decided_by          text        NOT NULL,
        evidence            text,
        settled_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
        generation          integer     NOT NULL CHECK (generation >= 0),
        attempts            integer     NOT NULL DEFAULT 0,
        entered_at          timestamptz,
        claimed_by          text        COLLATE "C",
        claimed_at          timestamptz,
        doubt_since         timestamptz,
        provider            text,
        provider_message_id text,
        template_hash       text        COLLATE "C",
        batch_id            uuid,
        resend_number       integer     NOT NULL DEFAULT 0,
        CHECK (state = 'sent' OR reason IS NOT NULL),
        CHECK (state <> 'sent' OR evidence IS NOT NULL),
        CHECK ((state = 'uncertain') = (doubt_since IS NOT NULL))
    )
    """,
    "CREATE INDEX settlements_unsent ON settlements (state, id) WHERE state <> 'sent'",
    # ------------------------------------------------------------------------------------------ records
    """
    CREATE TABLE attempts (
        notification_id     uuid        NOT NULL,
        generation          integer     NOT NULL,
        worker              text        COLLATE "C" NOT NULL,
        user_id             text        COLLATE "C" NOT NULL,
        provider            text        NOT NULL,
        resend_number       integer     NOT NULL,
        outcome             text        NOT NULL CHECK (outcome IN ('accepted', 'duplicate', 'rejected', 'retry_later',
                                                                    'ambiguous', 'body_mismatch', 'config_error')),
        reason              text,
        provider_message_id text,
        claimed_at          timestamptz NOT NULL,
        started_at          timestamptz NOT NULL,
        finished_at         timestamptz NOT NULL,
        PRIMARY KEY (notification_id, generation, worker)
    )
    """,
    """
    CREATE TABLE templates (
        hash       text        COLLATE "C" NOT NULL PRIMARY KEY,
        name       text        NOT NULL,
        sender     text        NOT NULL,
        subject    text        NOT NULL,
        html       text        NOT NULL,
        body       text        NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    """
    CREATE TABLE suppressions (
        address    text        COLLATE "C" NOT NULL PRIMARY KEY CHECK (address = lower(address)),
        user_id    text        COLLATE "C",
        reason     text        NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    """
    CREATE TABLE switches (
        name       text        COLLATE "C" NOT NULL PRIMARY KEY,
        owner      text        NOT NULL CHECK (owner <> ''),
        reason     text        NOT NULL CHECK (reason <> ''),
        set_at     timestamptz NOT NULL,
        expires_at timestamptz NOT NULL CHECK (expires_at > set_at)
    )
    """,
    """
    CREATE TABLE audit_log (
        id      bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at      timestamptz NOT NULL DEFAULT clock_timestamp(),
        actor   text        NOT NULL,
        act     text        NOT NULL,
        target  text        NOT NULL,
        user_id text        COLLATE "C",
        detail  jsonb       NOT NULL DEFAULT '{}'
    )
    """,
    "CREATE INDEX audit_log_of_user ON audit_log (user_id, id) WHERE user_id IS NOT NULL",
    """
    CREATE TABLE workers (
        id           text        COLLATE "C" NOT NULL PRIMARY KEY,
        role         text        NOT NULL CHECK (role IN ('api', 'worker', 'scheduler')),
        host         text        NOT NULL,
        pid          integer     NOT NULL,
        started_at   timestamptz NOT NULL DEFAULT now(),
        heartbeat_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    # ------------------------------------------------------------------------------------------ one state each
    """
    CREATE VIEW notifications AS
    SELECT o.id, o.user_id, o.kind, o.kind_name, o.decided_at, o.due_at, o.decided_by AS created_by, o.taken_at,
           CASE WHEN t.id IS NOT NULL THEN t.state
                WHEN d.id IS NOT NULL THEN CASE WHEN d.claimed_by IS NULL THEN 'pending' ELSE 'sending' END
                WHEN s.id IS NOT NULL THEN 'scheduled' END AS state,
           coalesce(t.reason, d.reason) AS reason,
           t.decided_by, t.evidence, t.settled_at, t.provider_message_id,
           coalesce(t.generation, d.generation, s.generation) AS generation,
           coalesce(t.attempts, d.attempts, 0) AS attempts,
           coalesce(t.claimed_by, d.claimed_by) AS claimed_by,
           coalesce(t.claimed_at, d.claimed_at) AS claimed_at,
           d.claim_expires_at, d.next_attempt_at,
           coalesce(t.doubt_since, d.doubt_since) AS doubt_since,
           coalesce(t.provider, d.provider) AS provider,
           coalesce(t.template_hash, d.template_hash) AS template_hash,
           coalesce(t.resend_number, d.resend_number, s.resend_number) AS resend_number,
           coalesce(t.entered_at, d.entered_at) AS entered_at
      FROM outbox o
      LEFT JOIN settlements t ON t.id = o.id
      LEFT JOIN deliveries d ON d.id = o.id
      LEFT JOIN scheduled_sends s ON s.id = o.id
    """,
)

COMMENTS = {
    "installation": {
        "": "one row: what makes this installation itself",
        "only_row": "always true: the primary key that allows one row",
        "namespace": "from it and the business identity every provider key is derived; survives in backups",
        "clock_offset": "how far business time is ahead of real time; zero outside development",
        "created_at": "when the schema was made",
    },
    "users": {
        "": "what is true of a user; its row lock orders everything decided about the user",
        "user_id": "the application's id of the person",
        "email": "where mails go, normalized; null while unknown",
        "email_at": "occurred_at of the event that set email; the newest wins",
        "name": "what the person is called in a mail",
        "name_at": "occurred_at of the event that set name",
        "timezone": "IANA name",
        "timezone_at": "occurred_at of the event that set timezone",
        "locale": "language tag",
        "locale_at": "occurred_at of the event that set locale",
        "attributes": "free-form values of the application, replaced as a whole",
        "attributes_at": "occurred_at of the event that set attributes",
        "created_at": "first event of this user, real time",
        "erased_at": "since when this row is a tombstone, real time: it keeps the guards, and nothing personal",
    },
    "last_seen": {
        "": "latest occurred_at per user and event type, for types the journeys file names",
        "user_id": "whose event",
        "event_type": "which type",
        "seen_at": "the latest occurred_at accepted so far",
        "event_ref": "the event that set it: source/id",
    },
    "events": {
        "": "accepted events; the primary key makes a repeat harmless",
        "source": "the door: api, or the webhook endpoint's name",
        "id": "the sender's id, unique per source",
        "type": "what happened",
        "user_id": "to whom",
        "occurred_at": "when, as the sender says; the database's business clock where the sender is silent",
        "fingerprint": "SHA-256 of the parsed content without the id: tells a repeat from a conflict",
        "answer": "what the sender was told; null only inside the accepting transaction",
        "taken_at": "business time read under the user lock",
        "received_at": "real time of the insert",
    },
    "outbox": {
        "": "the decision that a user gets a kind of mail; never deleted, and never updated but to empty its data",
        "id": "UUIDv7, the same in all places",
        "user_id": "who gets it",
        "kind": "which mail: name or name@occurrence",
        "kind_name": "the part of kind before the @",
        "decided_at": "occurred_at of the deciding event",
        "decided_by": "the deciding event: source/id",
        "due_at": "not before this business time",
        "cancel_on": "event types that stop it",
        "cancel_from": "a canceling event counts from this occurred_at on",
        "data": "what the template may use, as known at the decision",
        "taken_at": "real time of the decision, read under the user lock",
    },
    "scheduled_sends": {
        "": "notifications that wait for their date and can still be canceled",
        "id": "the notification",
        "user_id": "who gets it",
        "kind": "which mail",
        "due_at": "business time of release",
        "generation": "raised by operator acts; carried along, never restarts",
        "resend_number": "0, or the number of the new key a person asked for",
    },
    "deliveries": {
        "": "open notifications: owed now, or in a worker's hands",
        "id": "the notification",
        "user_id": "who gets it",
        "kind": "which mail",
        "kind_name": "the part of kind before the @: what claims and switches name",
        "next_attempt_at": "business time from which it may be claimed",
        "entered_at": "real time of the entry here, or of the last retry by a person",
        "generation": "the fence: raised by every claim and every operator act; later writes name it",
        "attempts": "counted attempts, the one in hand included",
        "waits": "uncounted refusals so far; they lengthen the back-off",
        "claimed_by": "process start that owns it; null when nobody does",
        "claimed_at": "real time of the claim",
        "claim_expires_at": "real time after which anybody may take it over",
        "calling": "the owner may be calling the provider: if it vanishes the row is in doubt",
        "doubt_since": "earliest real time at which the provider may have taken it",
        "provider": "provider account of the present or doubtful attempt",
        "recipient": "frozen by the first claim",
        "locale": "frozen by the first claim",
        "template_hash": "frozen by the first claim; null before it",
        "batch_id": "frozen batch it belongs to, if any",
        "resend_number": "0, or the number of the new key a person asked for",
        "reason": "why the last attempt led to no end",
        "erased": "its user was erased: it ends at the next claim, and keeps no address beyond the present one",
    },
    "settlements": {
        "": "closed notifications and how they ended",
        "id": "the notification",
        "user_id": "who got it, or did not",
        "kind": "which mail",
        "state": "sent, canceled, skipped, failed or uncertain",
        "reason": "a code; always there unless sent",
        "decided_by": "event, operator act, rule or worker that ended it",
        "evidence": "how we know it was sent",
        "settled_at": "real time of the end",
        "generation": "generation at the end",
        "attempts": "counted attempts",
        "entered_at": "real time of the entry into deliveries, if it was there",
        "claimed_by": "owner at the end, if there was one",
        "claimed_at": "real time of that claim",
        "doubt_since": "set exactly while uncertain",
        "provider": "provider account of the last attempt",
        "provider_message_id": "the provider's name for the mail",
        "template_hash": "as frozen",
        "batch_id": "frozen batch it was sent in, if any",
        "resend_number": "number of the key it ended under",
    },
    "attempts": {
        "": "every finished call of a provider; append-only",
        "notification_id": "for which notification",
        "generation": "under which claim",
        "worker": "made by which process start",
        "user_id": "for whom",
        "provider": "which account",
        "resend_number": "under which key number",
        "outcome": "what came back",
        "reason": "code that came with it",
        "provider_message_id": "the provider's name for the mail",
        "claimed_at": "real time of the claim",
        "started_at": "real time of the call's begin",
        "finished_at": "real time of the call's end",
    },
    "templates": {
        "": "every template text a mail was ever rendered from, by content",
        "hash": "SHA-256 of sender and sources",
        "name": "folder it came from",
        "sender": "the From of the mail: a repeat has the same one, whatever the setting says by then",
        "subject": "Jinja2 source of the subject",
        "html": "Jinja2 source of the HTML part",
        "body": "Jinja2 source of the text part",
        "created_at": "first seen",
    },
    "suppressions": {
        "": "addresses that get nothing any more; read at the claim",
        "address": "lower case",
        "user_id": "whose address it was, if known",
        "reason": "bounce, complaint, …",
        "created_at": "since when",
    },
    "switches": {
        "": "what operators hold back, each with an owner and an end",
        "name": "pause, pause:<kind>, pause:provider:<name> or maintenance",
        "owner": "who to ask",
        "reason": "why",
        "set_at": "business time",
        "expires_at": "business time at which it ends by itself",
    },
    "audit_log": {
        "": "operator acts; append-only",
        "id": "order",
        "at": "real time",
        "actor": "fingerprint of the API key",
        "act": "what was done",
        "target": "to which notification or switch",
        "user_id": "whose notification",
        "detail": "the rest",
    },
    "workers": {
        "": "process starts and their last sign of life",
        "id": "unique per process start; what claimed_by holds",
        "role": "api, worker or scheduler",
        "host": "where",
        "pid": "process id there",
        "started_at": "real time",
        "heartbeat_at": "real time",
    },
}


def upgrade() -> None:
    """Make everything."""
    for statement in STATEMENTS:
        op.execute(statement)
    for table, columns in COMMENTS.items():
        for column, text in columns.items():
            name = f"COLUMN {table}.{column}" if column else f"TABLE {table}"
            literal = text.replace("'", "''").replace(":", r"\:")
            op.execute(f"COMMENT ON {name} IS '{literal}'")


def downgrade() -> None:
    """There is no way back: migrations go forward only."""
    raise NotImplementedError("migrations go forward only; restore a backup instead")
