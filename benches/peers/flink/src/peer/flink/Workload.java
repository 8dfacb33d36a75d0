package peer.flink;

/** One operation: what is called in the timed loop, and what surrounds it. */
final class Workload {
    interface Call {
        /** Runs call number {@code i} and returns its answer. */
        long run(int i) throws Exception;
    }

    interface Step {
        void run() throws Exception;
    }

    interface Digest {
        long compute() throws Exception;
    }

    /** The answer that stands for "no value". */
    static final long ABSENT = -1;

    final Call call;
    /** A checksum of all state. */
    final Digest digest;
    /** Runs before each round; not measured. */
    Step beforeRound = () -> {};
    int callsPerRound = Inputs.KEYS;

    Workload(Call call, Digest digest) {
        this.call = call;
        this.digest = digest;
    }

    Workload beforeRound(Step step) {
        beforeRound = step;
        return this;
    }

    Workload callsPerRound(int calls) {
        callsPerRound = calls;
        return this;
    }

    static long mix(long sum, long answer) {
        return sum * 31 + answer;
    }

    interface PerKey {
        long compute() throws Exception;
    }

    /** The checksum over all keys that may have state, in order. */
    static Digest overAllKeys(
            org.apache.flink.runtime.state.KeyedStateBackend<Long> backend, PerKey perKey) {
        return () -> {
            long sum = 0;
            for (long key = 0; key < 2L * Inputs.KEYS; key++) {
                backend.setCurrentKey(key);
                sum = mix(sum, perKey.compute());
            }
            return sum;
        };
    }
}
