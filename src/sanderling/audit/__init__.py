"""Was it earned? Attacks that act in the sandbox, honest fixes beside them, and what each grader paid."""
