//! Rows as comma-separated values, for spreadsheets: a line of names, then a line for each row.
//!
//! ```text
//! file  := names CRLF (row CRLF)*
//! row   := field ("," field)*              as many as there are names
//! field := text | '"' text '"'             quoted where it has a comma, a quote or an end of line; a quote is doubled
//! ```
//!
//! The names are those of the JSON report. What has several values there, the timeline, the single servers and the
//! parts of memory, is left out. A field is empty where a figure is not known.

use crate::report::Row;

/// A column: its name, and its field of a row.
type Column = (&'static str, fn(&Row) -> String);

/// All columns.
const COLUMNS: [Column; 44] = [
    ("workload", |row| row.subject.workload.clone()),
    ("mix", |row| row.subject.mix.clone()),
    ("sizes", |row| row.subject.sizes.clone()),
    ("engine", |row| row.subject.engine.clone()),
    ("placement", |row| row.subject.placement.clone()),
    ("compaction", |row| row.subject.compaction.clone()),
    ("replication", |row| row.subject.replication.clone()),
    ("address_mode", |row| row.subject.address_mode.clone()),
    ("fabric", |row| row.subject.fabric.clone()),
    ("options", |row| row.subject.options.clone()),
    ("servers", |row| row.scale.servers.to_string()),
    ("replicas", |row| row.scale.replicas.to_string()),
    ("regions", |row| row.scale.regions.to_string()),
    ("clients", |row| row.scale.clients.to_string()),
    ("records", |row| row.scale.records.to_string()),
    ("ops", |row| row.scale.ops.to_string()),
    ("seconds", |row| row.speed.seconds.to_string()),
    ("ops_per_second", |row| row.speed.ops_per_second.to_string()),
    ("cpu_us_per_op", |row| row.cpu.cpu_us_per_op.to_string()),
    ("client_cpu_us_per_op", |row| {
        row.cpu.client_cpu_us_per_op.to_string()
    }),
    ("compaction_cpu_us_per_op", |row| {
        row.cpu.compaction_cpu_us_per_op.to_string()
    }),
    ("cpu_us_request", |row| activity(row, 0)),
    ("cpu_us_log_replication", |row| activity(row, 1)),
    ("cpu_us_compaction", |row| activity(row, 2)),
    ("cpu_us_index_shipping", |row| activity(row, 3)),
    ("cpu_us_rewriting", |row| activity(row, 4)),
    ("cpu_us_other", |row| activity(row, 5)),
    ("latency_us_p50", |row| row.times.latency_us.p50.to_string()),
    ("latency_us_p99", |row| row.times.latency_us.p99.to_string()),
    ("latency_us_p999", |row| {
        row.times.latency_us.p999.to_string()
    }),
    ("latency_us_p9999", |row| {
        row.times.latency_us.p9999.to_string()
    }),
    ("latency_us_max", |row| row.times.latency_us.max.to_string()),
    ("device_read_bytes", |row| {
        row.devices.device_read_bytes.to_string()
    }),
    ("device_write_bytes", |row| {
        row.devices.device_write_bytes.to_string()
    }),
    ("io_amplification", |row| {
        row.devices.io_amplification.to_string()
    }),
    ("io_amplification_without_logs", |row| {
        known(row.devices.io_amplification_without_logs)
    }),
    ("network_bytes", |row| row.network.network_bytes.to_string()),
    ("network_amplification", |row| {
        row.network.network_amplification.to_string()
    }),
    ("peak_rss_bytes", |row| {
        row.resident.peak_rss_bytes.to_string()
    }),
    ("space_bytes", |row| row.store.space_bytes.to_string()),
    ("levels", |row| row.store.levels.to_string()),
    ("compactions", |row| row.store.compactions.to_string()),
    ("filter_false_positive_rate", |row| {
        known(row.store.filter_false_positive_rate)
    }),
    ("errors", |row| row.errors.to_string()),
];

fn activity(row: &Row, place: usize) -> String {
    row.cpu.activity_cpu_us_per_op.parts()[place].to_string()
}

fn known(figure: Option<f64>) -> String {
    figure.map_or_else(String::new, |figure| figure.to_string())
}

/// The file of `rows`.
#[must_use]
pub fn csv(rows: &[Row]) -> String {
    let mut out = String::new();
    put_line(&mut out, COLUMNS.iter().map(|(name, _)| (*name).to_owned()));
    for row in rows {
        put_line(&mut out, COLUMNS.iter().map(|(_, field)| field(row)));
    }
    out
}

fn put_line(out: &mut String, fields: impl Iterator<Item = String>) {
    for (place, field) in fields.enumerate() {
        if place > 0 {
            out.push(',');
        }
        if field.contains([',', '"', '\r', '\n']) {
            out.push('"');
            out.push_str(&field.replace('"', "\"\""));
            out.push('"');
        } else {
            out.push_str(&field);
        }
    }
    out.push_str("\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_have_to_be() {
        let mut out = String::new();
        let fields = ["plain", "", "a,b", "say \"a\"", "two\nlines"];
        put_line(&mut out, fields.into_iter().map(ToOwned::to_owned));
        assert_eq!(out, "plain,,\"a,b\",\"say \"\"a\"\"\",\"two\nlines\"\r\n");
    }

    #[test]
    fn names_are_there_without_rows_and_each_once() {
        let text = csv(&[]);
        let mut names: Vec<_> = text.trim_end().split(',').collect();
        assert_eq!(names.len(), COLUMNS.len());
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COLUMNS.len());
    }

    #[test]
    fn a_row_has_a_field_for_each_name() {
        let mut row = crate::figure::tests::row(1.0, 2.0, 3.0, 4);
        row.subject.options = "a=1, b=2".to_owned();
        row.speed.ops_per_second = 1234.5;
        row.devices.io_amplification_without_logs = None;
        let text = csv(&[row]);
        let line = text.lines().nth(1).unwrap();
        assert!(
            line.contains(",\"a=1, b=2\",") && line.contains(",1234.5,"),
            "{line}"
        );
        assert_eq!(line.matches(',').count(), COLUMNS.len(), "one is quoted");
    }
}
