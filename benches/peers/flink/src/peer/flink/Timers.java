package peer.flink;

import static peer.flink.Workload.ABSENT;
import static peer.flink.Workload.mix;

import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.runtime.state.CheckpointableKeyedStateBackend;
import org.apache.flink.runtime.state.KeyGroupedInternalPriorityQueue;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.streaming.api.operators.TimerHeapInternalTimer;
import org.apache.flink.streaming.api.operators.TimerSerializer;

/** Timers at random times, one for each key, in the queue that the backend makes. */
final class Timers {
    private final KeyGroupedInternalPriorityQueue<TimerHeapInternalTimer<Long, VoidNamespace>> queue;
    private final Long[] toDelete = Inputs.shuffled(2 * Inputs.KEYS, 49, 0);

    private Timers(CheckpointableKeyedStateBackend<Long> backend) {
        queue =
                backend.create(
                        "timers",
                        new TimerSerializer<>(
                                LongSerializer.INSTANCE, VoidNamespaceSerializer.INSTANCE));
    }

    static Workload open(CheckpointableKeyedStateBackend<Long> backend, String operation) {
        Timers timers = new Timers(backend);
        Workload workload = new Workload(timers.call(operation), timers::digest);
        boolean full = !operation.equals("timerRegister");
        return workload.callsPerRound(2 * Inputs.KEYS).beforeRound(() -> timers.reset(full));
    }

    private Workload.Call call(String operation) {
        switch (operation) {
            case "timerRegister":
                return i -> {
                    queue.add(timer(i));
                    return 0;
                };
            case "timerDelete":
                return i -> {
                    queue.remove(timer(toDelete[i].intValue()));
                    return 0;
                };
            case "timerFire":
                return i -> answer(queue.poll());
            default:
                throw new IllegalArgumentException(operation);
        }
    }

    private static TimerHeapInternalTimer<Long, VoidNamespace> timer(int key) {
        return new TimerHeapInternalTimer<>(Inputs.VALUES[key], (long) key, VoidNamespace.INSTANCE);
    }

    private static long answer(TimerHeapInternalTimer<Long, VoidNamespace> timer) {
        return timer == null
                ? mix(ABSENT, ABSENT)
                : mix(timer.getTimestamp(), timer.getKey());
    }

    /** No timer is left, or there is one for each key. */
    private void reset(boolean full) {
        while (queue.poll() != null) {}
        for (int key = 0; full && key < 2 * Inputs.KEYS; key++) {
            queue.add(timer(key));
        }
        System.gc();
    }

    private long digest() {
        long sum = 0;
        TimerHeapInternalTimer<Long, VoidNamespace> timer;
        while ((timer = queue.poll()) != null) {
            sum = mix(sum, answer(timer));
        }
        return sum;
    }
}
