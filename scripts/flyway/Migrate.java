import java.util.logging.Level;
import java.util.logging.Logger;
import org.flywaydb.core.Flyway;

/** Runs the migrations of a folder with Flyway: URL USER PASSWORD FOLDER. */
class Migrate {
    public static void main(String[] args) {
        Logger.getLogger("").setLevel(Level.SEVERE);
        var result = Flyway.configure()
            .dataSource(args[0], args[1], args[2])
            .locations("filesystem:" + args[3])
            .load()
            .migrate();
        System.out.println("applied " + result.migrationsExecuted);
    }
}
