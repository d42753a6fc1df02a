"""Who may do what: users, keys, roles, sessions, secrets, audit."""
