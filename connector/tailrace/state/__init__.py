"""What a record of `<prefix>.offsets` holds (docs/contracts.md section 1), as plain values."""
