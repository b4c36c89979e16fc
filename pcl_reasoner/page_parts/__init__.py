"""The parts of HTML pages: charts, and the record of a stage that a page shows."""
