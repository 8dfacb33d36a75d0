package peer.flink;

import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.Future;
import java.util.concurrent.RunnableFuture;

import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.runtime.checkpoint.CheckpointOptions;
import org.apache.flink.runtime.state.CheckpointStorageLocationReference;
import org.apache.flink.runtime.state.CheckpointableKeyedStateBackend;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.SnapshotResult;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;

/** Checkpoints of values of 100 bytes to a local folder, and restores from them. */
final class Snapshots {
    private static final int VALUE_LEN = 100;

    private final FlinkEnvironment flink;
    private final CheckpointableKeyedStateBackend<Long> backend;
    private final ValueState<byte[]> state;
    private final SplittableRandom random = new SplittableRandom(42);
    private long checkpoint;

    Snapshots(FlinkEnvironment flink, CheckpointableKeyedStateBackend<Long> backend)
            throws Exception {
        this.flink = flink;
        this.backend = backend;
        state = state(backend);
        for (long key = 0; key < Inputs.KEYS; key++) {
            set(key);
        }
    }

    /**
     * One checkpoint, a restore from it, and one after a change of one percent: the time of the
     * synchronous part, of the first checkpoint, of the restore, and of the second checkpoint in
     * nanoseconds, the bytes of both.
     */
    String round() throws Exception {
        long begun = System.nanoTime();
        RunnableFuture<SnapshotResult<KeyedStateHandle>> task = begin();
        long pinned = System.nanoTime() - begun;
        KeyedStateHandle whole = finish(task);
        long written = System.nanoTime() - begun;
        long restored = restore(whole);
        whole.discardState();
        for (int i = 0; i < Inputs.KEYS / 100; i++) {
            set(random.nextLong(Inputs.KEYS));
        }
        begun = System.nanoTime();
        KeyedStateHandle next = finish(begin());
        long changed = System.nanoTime() - begun;
        long[] numbers = {
            pinned, written, restored, changed, whole.getStateSize(), next.getStateSize()
        };
        next.discardState();
        return Arrays.toString(numbers).replaceAll("[^0-9 ]", "");
    }

    private RunnableFuture<SnapshotResult<KeyedStateHandle>> begin() throws Exception {
        checkpoint++;
        flink.storage.initializeLocationForCheckpoint(checkpoint);
        return backend.snapshot(
                checkpoint,
                System.currentTimeMillis(),
                flink.storage.resolveCheckpointStorageLocation(
                        checkpoint, CheckpointStorageLocationReference.getDefault()),
                CheckpointOptions.forCheckpointWithDefaultLocation());
    }

    /** As a task does: the rest runs on another thread. */
    private KeyedStateHandle finish(RunnableFuture<SnapshotResult<KeyedStateHandle>> task)
            throws Exception {
        Future<?> run = flink.pool.submit(task);
        run.get();
        return task.get().getJobManagerOwnedSnapshot();
    }

    private long restore(KeyedStateHandle handle) throws Exception {
        long key = random.nextLong(Inputs.KEYS);
        backend.setCurrentKey(key);
        byte[] expected = state.value();
        long begun = System.nanoTime();
        CheckpointableKeyedStateBackend<Long> restored =
                flink.open(
                        LongSerializer.INSTANCE,
                        new KeyGroupRange(0, flink.keyGroups - 1),
                        List.of(handle));
        long time = System.nanoTime() - begun;
        ValueState<byte[]> values = state(restored);
        restored.setCurrentKey(key);
        if (!Arrays.equals(values.value(), expected)) {
            throw new IllegalStateException("another value is restored");
        }
        restored.close();
        restored.dispose();
        return time;
    }

    private void set(long key) throws Exception {
        byte[] value = new byte[VALUE_LEN];
        random.nextBytes(value);
        backend.setCurrentKey(key);
        state.update(value);
    }

    private static ValueState<byte[]> state(CheckpointableKeyedStateBackend<Long> backend)
            throws Exception {
        return backend.getPartitionedState(
                VoidNamespace.INSTANCE,
                VoidNamespaceSerializer.INSTANCE,
                new ValueStateDescriptor<>("values", byte[].class));
    }
}
