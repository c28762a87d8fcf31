"""What merging row state takes in every store: definitions, the changes of a batch, stored rows; no store's library."""
