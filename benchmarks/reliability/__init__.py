"""What elmokit holds against: results of fault injection, one JSON file per part."""
