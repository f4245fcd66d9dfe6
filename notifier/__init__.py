"""Onboarding and follow-up mails, each sent once."""
