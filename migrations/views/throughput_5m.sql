-- As throughput, by windows of five minutes (UTC), of the last two days: for so long sums of five minutes are kept.
{text throughput}
