//! Metric families, filled by hand from numbers that are kept elsewhere, and written as text by the
//! encoder of crate `prometheus`.

use std::time::Duration;

use prometheus::TextEncoder;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};

/// Names and values of labels.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

/// Families in the order in which they are shown.
#[derive(Default)]
pub(super) struct Families(Vec<MetricFamily>);

/// One family that is being filled.
pub(super) struct Family<'a>(&'a mut MetricFamily);

impl Families {
    /// What only rises; its name ends in `_total`.
    pub(super) fn counter(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(name, help, MetricType::COUNTER)
    }

    /// What rises and falls.
    pub(super) fn gauge(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(name, help, MetricType::GAUGE)
    }

    /// Durations in buckets.
    pub(super) fn histogram(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(name, help, MetricType::HISTOGRAM)
    }

    fn family(&mut self, name: &str, help: &str, kind: MetricType) -> Family<'_> {
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        self.0.push(family);
        Family(self.0.last_mut().expect("it was pushed"))
    }

    /// The text. Families without a value are left out.
    pub(super) fn text(mut self) -> String {
        self.0.retain(|family| !family.get_metric().is_empty());
        let text = TextEncoder::new().encode_to_string(&self.0);
        text.expect("every family has a name and values")
    }
}

impl Family<'_> {
    /// The family's only value.
    pub(super) fn is(&mut self, value: f64) {
        self.with(&[], value);
    }

    /// A value.
    pub(super) fn with(&mut self, labels: Labels<'_>, value: f64) {
        let mut metric = Metric::from_label(pairs(labels));
        if self.0.get_field_type() == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        self.0.mut_metric().push(metric);
    }

    /// A count of things.
    pub(super) fn count(&mut self, labels: Labels<'_>, value: u64) {
        self.with(labels, float(value));
    }

    /// A histogram: how many values were at most as large as each bound, then how many there were,
    /// and their sum.
    pub(super) fn durations(
        &mut self,
        labels: Labels<'_>,
        bounds_micros: &[u64],
        cumulative: &[u64],
        sum: Duration,
    ) {
        let bucket = |(bound, count): (&u64, &u64)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(Duration::from_micros(*bound).as_secs_f64());
            bucket.set_cumulative_count(*count);
            bucket
        };
        let mut histogram = Histogram::default();
        histogram.set_bucket(bounds_micros.iter().zip(cumulative).map(bucket).collect());
        histogram.set_sample_count(cumulative.last().copied().unwrap_or(0));
        histogram.set_sample_sum(sum.as_secs_f64());
        let mut metric = Metric::from_label(pairs(labels));
        metric.set_histogram(histogram);
        self.0.mut_metric().push(metric);
    }
}

fn pairs(labels: Labels<'_>) -> Vec<LabelPair> {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    labels.iter().map(pair).collect()
}

/// A count as the number that metrics are made of; exact up to 2^53.
#[expect(
    clippy::cast_precision_loss,
    reason = "metrics are floating-point numbers"
)]
pub(super) const fn float(value: u64) -> f64 {
    value as f64
}
