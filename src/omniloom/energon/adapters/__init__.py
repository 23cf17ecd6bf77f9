"""Energon's signatures over omniloom's engine: translations of arguments, without iteration or state of their own."""
