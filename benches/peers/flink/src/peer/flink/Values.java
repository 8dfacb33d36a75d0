package peer.flink;

import static peer.flink.Workload.ABSENT;

import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.runtime.state.KeyedStateBackend;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;

/** One value per key. */
final class Values {
    private Values() {}

    static Workload open(KeyedStateBackend<Long> backend, Ttl ttl, String operation)
            throws Exception {
        ValueStateDescriptor<Long> descriptor =
                new ValueStateDescriptor<>("kvState", Long.class);
        ttl.enable(descriptor);
        ValueState<Long> state =
                backend.getPartitionedState(
                        VoidNamespace.INSTANCE,
                        VoidNamespaceSerializer.INSTANCE,
                        descriptor);
        for (long key = 0; key < Inputs.KEYS; key++) {
            Ttl.timeOf(key);
            backend.setCurrentKey(key);
            state.update(Inputs.number(key));
        }
        Workload.PerKey get =
                () -> {
                    Long value = state.value();
                    return value == null ? ABSENT : value;
                };
        return new Workload(call(backend, state, operation), Workload.overAllKeys(backend, get));
    }

    private static Workload.Call call(
            KeyedStateBackend<Long> backend, ValueState<Long> state, String operation) {
        switch (operation) {
            case "valueGet":
                return i -> {
                    backend.setCurrentKey(Inputs.key(i));
                    Long value = state.value();
                    return value == null ? ABSENT : value;
                };
            case "valueUpdate":
                return i -> {
                    backend.setCurrentKey(Inputs.key(i));
                    state.update(Inputs.value(i));
                    return 0;
                };
            case "valueReadModifyWrite":
                return i -> {
                    backend.setCurrentKey(Inputs.key(i));
                    Long value = state.value();
                    long next = (value == null ? 0 : value) + 1;
                    state.update(next);
                    return next;
                };
            case "valueAdd":
                return i -> {
                    backend.setCurrentKey(Inputs.newKey(i));
                    state.update(Inputs.value(i));
                    return 0;
                };
            default:
                throw new IllegalArgumentException(operation);
        }
    }
}
