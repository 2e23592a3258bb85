"""What a result looks like to people and programs: one verdict sentence, a table, JSON, CSV. No physics here."""
