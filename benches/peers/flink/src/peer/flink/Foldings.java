package peer.flink;

import static peer.flink.Workload.ABSENT;

import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.state.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.AppendingState;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.runtime.state.KeyedStateBackend;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;

/** A sum (reducing state), or a sum and a count (aggregating state) per key. */
final class Foldings {
    private Foldings() {}

    static Workload open(KeyedStateBackend<Long> backend, String operation) throws Exception {
        AppendingState<Long, Long> state =
                operation.startsWith("reducing") ? reducing(backend) : aggregating(backend);
        for (long key = 0; key < Inputs.KEYS; key++) {
            backend.setCurrentKey(key);
            state.add(key);
        }
        Workload.PerKey get =
                () -> {
                    Long value = state.get();
                    return value == null ? ABSENT : value;
                };
        return new Workload(call(backend, state, operation), Workload.overAllKeys(backend, get));
    }

    private static Workload.Call call(
            KeyedStateBackend<Long> backend, AppendingState<Long, Long> state, String operation) {
        if (operation.endsWith("Get")) {
            return i -> {
                backend.setCurrentKey(Inputs.key(i));
                Long value = state.get();
                return value == null ? ABSENT : value;
            };
        }
        if (!operation.endsWith("Add")) {
            throw new IllegalArgumentException(operation);
        }
        return i -> {
            backend.setCurrentKey(Inputs.key(i));
            state.add(Inputs.value(i));
            return 0;
        };
    }

    private static AppendingState<Long, Long> reducing(KeyedStateBackend<Long> backend)
            throws Exception {
        return backend.getPartitionedState(
                VoidNamespace.INSTANCE,
                VoidNamespaceSerializer.INSTANCE,
                new ReducingStateDescriptor<>("sum", Long::sum, Long.class));
    }

    private static AppendingState<Long, Long> aggregating(KeyedStateBackend<Long> backend)
            throws Exception {
        return backend.getPartitionedState(
                VoidNamespace.INSTANCE,
                VoidNamespaceSerializer.INSTANCE,
                new AggregatingStateDescriptor<>(
                        "mean", new Mean(), Types.TUPLE(Types.LONG, Types.LONG)));
    }

    /** The mean of what is added. */
    private static final class Mean implements AggregateFunction<Long, Tuple2<Long, Long>, Long> {
        @Override
        public Tuple2<Long, Long> createAccumulator() {
            return Tuple2.of(0L, 0L);
        }

        @Override
        public Tuple2<Long, Long> add(Long value, Tuple2<Long, Long> accumulator) {
            accumulator.f0 += value;
            accumulator.f1 += 1;
            return accumulator;
        }

        @Override
        public Long getResult(Tuple2<Long, Long> accumulator) {
            return accumulator.f0 / accumulator.f1;
        }

        @Override
        public Tuple2<Long, Long> merge(Tuple2<Long, Long> a, Tuple2<Long, Long> b) {
            return Tuple2.of(a.f0 + b.f0, a.f1 + b.f1);
        }
    }
}
