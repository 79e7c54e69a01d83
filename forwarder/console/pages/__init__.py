"""The pages: each module reads the data of its page and carries out its forms, through operations and ports."""
