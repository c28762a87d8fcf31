import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.UUID;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.cql3.statements.schema.CreateTableStatement;
import org.apache.cassandra.db.Mutation;
import org.apache.cassandra.db.commitlog.CommitLogDescriptor;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.commitlog.CommitLogReadHandler;
import org.apache.cassandra.db.commitlog.CommitLogReader;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.rows.ColumnData;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.db.rows.Unfiltered;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.io.util.File;
import org.apache.cassandra.schema.KeyspaceMetadata;
import org.apache.cassandra.schema.KeyspaceParams;
import org.apache.cassandra.schema.Schema;
import org.apache.cassandra.schema.TableId;
import org.apache.cassandra.schema.TableMetadata;

/**
 * Cassandra's own CommitLogReader over a directory of segments, once for each line of standard input; every cell is
 * visited, nothing is made of it. Prints "mutations cells CPU-nanoseconds" a line.
 *
 * <p>Arguments: directory, keyspace, table id, CREATE TABLE without WITH.
 */
public class VisitCommitLog implements CommitLogReadHandler {
  private long mutations;
  private long cells;

  public static void main(String[] arguments) throws Exception {
    DatabaseDescriptor.toolInitialization();
    Schema.instance.updateHandler.reset(true);
    KeyspaceMetadata keyspace = KeyspaceMetadata.create(arguments[1], KeyspaceParams.simple(1));
    TableMetadata table =
        CreateTableStatement.parse(arguments[3] + " WITH cdc = true", arguments[1])
            .id(TableId.fromUUID(UUID.fromString(arguments[2])))
            .build();
    Schema.instance.updateHandler.apply(
        schema -> schema.withAddedOrUpdated(keyspace.withSwapped(keyspace.tables.with(table))), true);
    Path[] segments;
    try (var files = Files.list(Path.of(arguments[0]))) {
      segments = files.filter(path -> path.toString().endsWith(".log")).sorted().toArray(Path[]::new);
    }
    var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    var input = new BufferedReader(new InputStreamReader(System.in));
    while (input.readLine() != null) {
      long before = system.getProcessCpuTime();
      VisitCommitLog visit = new VisitCommitLog();
      for (Path segment : segments) {
        long id = CommitLogDescriptor.fromFileName(segment.getFileName().toString()).id;
        new CommitLogReader()
            .readCommitLogSegment(
                visit, new File(segment), new CommitLogPosition(id, 0), CommitLogReader.ALL_MUTATIONS, false);
      }
      System.out.println(visit.mutations + " " + visit.cells + " " + (system.getProcessCpuTime() - before));
      System.out.flush();
    }
    System.exit(0);
  }

  @Override
  public boolean shouldSkipSegmentOnError(CommitLogReadException error) {
    throw new IllegalStateException(error);
  }

  @Override
  public void handleUnrecoverableError(CommitLogReadException error) {
    throw new IllegalStateException(error);
  }

  @Override
  public void handleMutation(Mutation mutation, int size, int position, CommitLogDescriptor descriptor) {
    if (!mutation.trackedByCDC()) {
      return;
    }
    mutations++;
    for (PartitionUpdate update : mutation.getPartitionUpdates()) {
      try (UnfilteredRowIterator rows = update.unfilteredIterator()) {
        while (rows.hasNext()) {
          Unfiltered unfiltered = rows.next();
          if (unfiltered.isRow()) {
            for (ColumnData column : (Row) unfiltered) {
              cells++;
            }
          }
        }
      }
    }
  }
}
