"""Which sample comes next: integers only, no file is ever opened here."""
