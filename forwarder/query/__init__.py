"""STAGE 3: store → records, pages and status over HTTP. Reads only; sees one integration account at a time."""
