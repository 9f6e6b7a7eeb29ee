"""The paper's tasks: data makes the sets, run trains, table shows; samples are for tests."""
