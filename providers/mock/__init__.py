"""A mail provider to run at home: speaks Resend's dialect, keeps what it takes, misbehaves on request."""
