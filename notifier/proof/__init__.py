"""The proof: a record of what was seen from outside, a checker that judges it, and what makes trouble worth judging."""
